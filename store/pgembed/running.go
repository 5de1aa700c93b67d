package pgembed

import (
	"os"
	"path/filepath"
	"strings"
)

// Running gives the address of a database of the server that runs on dataDir, started by another process, for tools
// that join it. ok is false when none runs there, or when this user may not see it.
func Running(dataDir, database, user string) (address string, ok bool) {
	// postmaster.pid: pid, data folder, start time, port, socket folder, ...; the last line says "ready" once it is.
	b, err := os.ReadFile(filepath.Join(dataDir, clusterDir, "postmaster.pid"))
	if err != nil {
		return "", false
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 8 || strings.TrimSpace(lines[7]) != "ready" {
		return "", false
	}
	socket := strings.TrimSpace(lines[4])
	if _, err := os.Stat(filepath.Join(socket, ".s.PGSQL."+port)); err != nil {
		return "", false
	}
	return addressOf(socket, database, user), true
}
