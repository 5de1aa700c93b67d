#!/bin/sh
# Stands in for errand-runner: what it does is told by the file that FAKE_RUNNER names, a list of words.
echo "$1 $ERRAND_RUN" >>"$FAKE_DIR/calls"
[ "$1" = run ] || exit 0
env | sort >"$FAKE_DIR/env"
cp .git/config "$FAKE_DIR/git-config"
cp "$GITHUB_EVENT_PATH" "$FAKE_DIR/event.json"
echo "::add-mask::$ERRAND_TICKET"
echo "the ticket is $ERRAND_TICKET and the key $ERRAND_ANTHROPIC_API_KEY"
echo "::stop-commands::abc"
echo "::add-mask::harmless"
echo "::abc::"
echo "harmless words stay"
echo "# Summary" >>"$GITHUB_STEP_SUMMARY"
case "$FAKE_RUNNER" in
fail) exit 3 ;;
hang)
	trap 'echo interrupted; exit 130' INT
	sleep 90 & echo $! >"$FAKE_DIR/grandchild"
	echo ready >"$FAKE_DIR/ready"
	wait
	;;
orphan)
	(trap '' INT TERM; exec sleep 90) & echo $! >"$FAKE_DIR/grandchild"
	;;
stubborn)
	trap '' INT TERM
	echo $$ >"$FAKE_DIR/pid"
	echo ready >"$FAKE_DIR/ready"
	for i in 1 2 3 4 5 6 7 8 9; do sleep 10; done # long enough for every test, and never for ever
	;;
esac
