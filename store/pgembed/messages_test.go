package pgembed

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
)

func TestTheServersMessagesAreLoggedByTheirSeverity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says, line, level string
		stopping          bool
	}{
		{"what it tells of itself", "LOG:  database system is ready to accept connections", "DEBUG", false},
		{"a warning", "WARNING:  there is no transaction in progress", "WARN", false},
		{"a statement that failed", "ERROR:  relation \"x\" does not exist", "WARN", false},
		{"a connection that it ended", "FATAL:  terminating connection due to administrator command", "ERROR", false},
		{"a connection that it ended because we stop it", "FATAL:  terminating connection due to administrator command", "DEBUG", true},
		{"a fault while we stop it", "FATAL:  could not write to file", "ERROR", true},
		{"its own end", "PANIC:  could not write to file", "ERROR", false},
		{"what it cannot begin with", "postgres: FATAL:  could not open directory", "ERROR", false},
		{"not up yet, as we ask for the first time", "FATAL:  the database system is starting up", "DEBUG", false},
		{"not up yet after a crash", "FATAL:  the database system is not yet accepting connections", "DEBUG", false},
	} {
		t.Run(c.says, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			m := &messages{log: slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))}
			if c.stopping {
				m.stop()
			}
			if _, err := m.Write([]byte(c.line + "\n")); err != nil {
				t.Fatal(err)
			}
			var got struct{ Level, Message string }
			if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Level != c.level || got.Message != c.line {
				t.Errorf("%+v %v, want %s", got, err, c.level)
			}
		})
	}
}
