package console

import (
	"encoding/json"
	"time"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/journal"
	"github.com/errand-dev/errand/store"
)

// entry is one row of a run's history.
type entry struct {
	At         time.Time
	Transition *journal.Transition // of kind run.transition
	Text       string              // of every other kind
	Bad        bool                // an alarm
	Link       link                // where the entry points outside, when it does
	Who        string              // the person's name, when a person did it
}

type link struct{ Address, Text string }

// verdict is one answer of the claim check.
type verdict struct {
	journal.ClaimVerdict
	At time.Time
}

// readHistory decodes a run's journal rows, oldest first. A record that does not decode stays in the history and says so.
func readHistory(rows []store.ConsoleJournalRow, names map[errand.ID]string) (entries []entry, verdicts []verdict) {
	for _, row := range rows {
		e, v := readEntry(row, names)
		if v != nil {
			verdicts = append(verdicts, *v)
		}
		entries = append(entries, e)
	}
	return entries, verdicts
}

func readEntry(row store.ConsoleJournalRow, names map[errand.ID]string) (entry, *verdict) {
	e := entry{At: row.At}
	unreadable := entry{At: row.At, Text: "This record (" + row.Kind + ") cannot be read."}
	decode := func(into any) bool { return json.Unmarshal([]byte(row.Body), into) == nil }
	switch row.Kind {
	case journal.KindTransition:
		var t journal.Transition
		if !decode(&t) || t.To == "" {
			return unreadable, nil
		}
		if e.Transition = &t; t.Person != "" {
			e.Who = nameOf(t.Person, names)
		}
	case journal.KindClaimVerdict:
		v := verdict{At: row.At}
		if !decode(&v.ClaimVerdict) || v.Verdict == "" {
			return unreadable, nil
		}
		e.Text = "Claim: " + verdictLabel(v).Text
		return e, &v
	case journal.KindPersonAction:
		var a journal.PersonAction
		if !decode(&a) || a.Action == "" {
			return unreadable, nil
		}
		e.Text, e.Who = words(a.Action), nameOf(a.Person, names)
	case journal.KindLateEvidence:
		var l journal.LateEvidence
		if !decode(&l) || l.Reported == "" {
			return unreadable, nil
		}
		e.Text = "A report came after the end and is kept as evidence: " + stateLabel(l.Reported).Text + ". What stands is: " + stateLabel(l.Stands).Text + "."
		if l.PRNumber > 0 {
			e.Link = link{l.PRURL, "#" + count(l.PRNumber)}
		}
	case journal.KindAlarm:
		var a journal.Alarm
		if !decode(&a) || a.Alarm == "" {
			return unreadable, nil
		}
		e.Bad = true
		if e.Text = words(a.Alarm); a.Effect != "" {
			e.Text += ": " + words(a.Effect)
		}
	default:
		e.Text = words(row.Kind)
	}
	return e, nil
}

func nameOf(person errand.ID, names map[errand.ID]string) string {
	if name, ok := names[person]; ok {
		return name
	}
	return "somebody who is no longer a member"
}

// verdictLabel says a verdict about the claim. It never says that the change is right: that was not asked.
func verdictLabel(v verdict) label {
	switch {
	case v.Verdict == "verified":
		return label{"Verified: the claim matches the change", toneGood}
	case v.Verdict == "needs_review" && v.Reason == "NO_JUDGE":
		return label{"Files verified, words not judged", toneWait}
	case v.Verdict == "needs_review":
		return label{"Needs review", toneWarn}
	case v.Verdict == "rejected":
		return label{"Rejected: the claim and the change do not agree", toneBad}
	default:
		return label{words(v.Verdict), toneWarn}
	}
}

// answerText says what the control plane made of a verdict.
func answerText(decision string) string {
	switch decision {
	case "admitted":
		return "admitted: it may be published"
	case "correct":
		return "sent back once, to be corrected"
	case "blocked":
		return "held by another open change"
	default:
		return words(decision)
	}
}

// findingText says what a finding's code means.
func findingText(code string) string {
	if t, ok := findingTexts[code]; ok {
		return t
	}
	return words(code)
}

var findingTexts = map[string]string{
	"CLAIM_INVALID":          "the claim itself is not well formed",
	"UNCLAIMED_CHANGE":       "changed, but not claimed",
	"CLAIMED_NOT_CHANGED":    "claimed, but not changed",
	"PROTECTED_PATH":         "a protected path",
	"DIFF_TOO_LARGE":         "the change is larger than the policy allows",
	"MODE_CHANGED":           "the file's mode changed without being claimed",
	"TYPE_CHANGED":           "the file's type changed without being claimed",
	"BINARY_CHANGED":         "a binary file changed without being claimed",
	"CASE_COLLISION":         "two names that differ in case only",
	"BASE_MISMATCH":          "the claim was made on another base",
	"REVIEWER_DIRECTED_TEXT": "text that addresses the reviewer",
}
