package pgembed

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestAStoppedServerStartsAgainWithItsData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "new", "data")
	s := start(t, Config{DataDir: dir, NoFsync: true})
	if err := execOn(t.Context(), s, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if left := processesIn(t, dir); len(left) > 0 {
		t.Fatalf("processes left after Stop: %v", left)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
	if _, err := os.Stat(s.socket.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's folder is still there: %v", err)
	}
	again := start(t, Config{DataDir: dir, NoFsync: true})
	if n := query[int](t, again, OwnerRole, "SELECT n FROM kept"); n != 7 {
		t.Errorf("after a restart n = %d, want 7", n)
	}
}

func TestTheServerIsWhatTheDocumentationSays(t *testing.T) {
	t.Parallel()
	s := start(t, Config{NoFsync: true, Settings: map[string]string{"max_connections": "42", "listen_addresses": "*"}})
	for _, tt := range []struct{ says, sql, want string }{
		{"no TCP port, whatever the settings ask for", "SHOW listen_addresses", ""},
		{"the caller's settings hold", "SHOW max_connections", "42"},
		{"UTF-8", "SHOW server_encoding", "UTF8"},
		{"byte order, not a country's", "SELECT datcollate FROM pg_database WHERE datname = 'errand'", "C.UTF-8"},
		{"no fsync when asked", "SHOW fsync", "off"},
		{"the owner owns the database", "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'errand'", OwnerRole},
		{
			"neither role is above the rules",
			"SELECT string_agg(rolname, ',' ORDER BY rolname) FROM pg_roles WHERE rolname LIKE 'errand%' AND rolcanlogin " +
				"AND NOT (rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls)",
			"errand_owner,errand_runtime",
		},
		{"the runtime role logs in", "SELECT current_user::text", RuntimeRole},
	} {
		if got := query[string](t, s, RuntimeRole, tt.sql); got != tt.want {
			t.Errorf("%s: %s = %q, want %q", tt.says, tt.sql, got, tt.want)
		}
	}
	fi, err := os.Stat(s.socket.path)
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v, %v; want mode 0700", fi.Mode(), err)
	}
	path := s.scratch.path
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the throwaway cluster is still there: %v", err)
	}
}

func TestDurableUnlessAskedOtherwise(t *testing.T) {
	t.Parallel()
	s := start(t, Config{DataDir: filepath.Join(folderIn(t, ""), "d")})
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := query[string](t, s, RuntimeRole, "SHOW "+name); got != "on" {
			t.Errorf("%s = %q, want on", name, got)
		}
	}
}

func TestASecondStartOnAFolderIsRefusedAndNamesTheHolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "d")
	s := start(t, Config{DataDir: dir, NoFsync: true})
	err := startErr(t, Config{DataDir: dir, NoFsync: true})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())+" ") {
		t.Errorf("error = %v, want ErrInUse naming pid %d", err, os.Getpid())
	}
	if one := query[int](t, s, OwnerRole, "SELECT 1"); one != 1 {
		t.Error("the first server suffered")
	}
}

func TestKill9OfTheParentLeavesNoServerAndNoHarm(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says string
		wait bool
	}{
		{"the server goes by itself", true},
		{"started again at once, while the old server may be on its way out", false},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(folder(t), "d")
			c := startHelper(t, dir, nil)
			if len(processesIn(t, dir)) == 0 {
				t.Fatal("the check sees no server while one runs")
			}
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.cmd.Wait()
			if tt.wait {
				eventually(t, "no process of the server is left", func() bool { return len(processesIn(t, dir)) == 0 })
			}
			s := start(t, Config{DataDir: dir, NoFsync: true})
			if n := query[int](t, s, OwnerRole, "SELECT n FROM kept"); n != 7 {
				t.Errorf("after kill -9 n = %d, want 7", n)
			}
		})
	}
}

func TestKill9InInitdbIsMadeGood(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "d")
	cmd := helperCommand(t, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, "initdb is at work", func() bool {
		made, err := filepath.Glob(filepath.Join(dir, freshPrefix+"*", "PG_VERSION"))
		return err == nil && len(made) > 0
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(filepath.Join(dir, clusterDir)); err == nil {
		t.Fatal("killed too late for this test to mean anything")
	}
	s := start(t, Config{DataDir: dir, NoFsync: true})
	if one := query[int](t, s, RuntimeRole, "SELECT 1"); one != 1 {
		t.Error("not whole")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing of the killed initdb runs", func() bool { return len(processesIn(t, dir)) == 0 })
	start(t, Config{DataDir: dir, NoFsync: true})
	if left, err := filepath.Glob(filepath.Join(dir, freshPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("unfinished clusters are still there: %v, %v", left, err)
	}
}

func TestAKilledPostmasterIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "d")
	s := start(t, Config{DataDir: dir, NoFsync: true})
	if err := execOn(t.Context(), s, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.proc.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	again := start(t, Config{DataDir: dir, NoFsync: true})
	if n := query[int](t, again, OwnerRole, "SELECT n FROM kept"); n != 7 {
		t.Errorf("n = %d, want 7", n)
	}
}

func TestAPidFileThatIsNoServersIsForgotten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "d")
	acct, err := findAccount()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(t, Config{DataDir: dir, NoFsync: true}).Stop(); err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("sleep", "600") // of the server's user: PostgreSQL would take it for a server
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: acct.credential()}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = stranger.Process.Kill(), stranger.Wait() })
	for _, tt := range []struct{ says, content string }{
		{"the pid now belongs to another program", strconv.Itoa(stranger.Process.Pid) + "\n"},
		{"the pid is nobody's", "2147483000\n"},
		{"the file was cut short", ""},
		{"the file is garbage", "\x00\x00\x00"},
	} {
		pidFile := filepath.Join(dir, clusterDir, "postmaster.pid")
		if err := os.WriteFile(pidFile, []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(pidFile, int(acct.uid), int(acct.gid)); err != nil {
			t.Fatal(err)
		}
		s, err := Start(t.Context(), Config{DataDir: dir, NoFsync: true})
		if err != nil {
			t.Errorf("%s: %v", tt.says, err)
			continue
		}
		if err := s.Stop(); err != nil {
			t.Errorf("%s: %v", tt.says, err)
		}
	}
}

func TestAFirstStartCutShortIsFinished(t *testing.T) {
	t.Parallel()
	t.Run("in initdb", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		if err := os.MkdirAll(filepath.Join(dir, freshPrefix+"1", "base"), 0o700); err != nil {
			t.Fatal(err)
		}
		s := start(t, Config{DataDir: dir, NoFsync: true})
		if one := query[int](t, s, RuntimeRole, "SELECT 1"); one != 1 {
			t.Error("not whole")
		}
	})
	t.Run("before the roles and the database, and a role that was given too much", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		s := start(t, Config{DataDir: dir, NoFsync: true})
		conn, err := s.Admin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"DROP DATABASE errand", "DROP ROLE errand_owner", "ALTER ROLE errand_runtime BYPASSRLS"} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(conn.Close(t.Context()), s.Stop()); err != nil {
			t.Fatal(err)
		}
		again := start(t, Config{DataDir: dir, NoFsync: true})
		if query[bool](t, again, OwnerRole, "SELECT rolbypassrls FROM pg_roles WHERE rolname = 'errand_runtime'") {
			t.Error("errand_runtime still bypasses row-level security")
		}
	})
}

func TestFoldersThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says, path, content, want string
	}{
		{"a folder with somebody else's files", "notes.txt", "x", `holds "notes.txt", which is not Errand's`},
		{"a cluster of another major version", clusterDir + "/PG_VERSION", "98\n", "was made by PostgreSQL 98"},
		{"a cluster without a version", clusterDir + "/base", "x", "is not a PostgreSQL cluster"},
		{"a version that is no number", clusterDir + "/PG_VERSION", "devel", "not a version that Errand knows"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			file := filepath.Join(dir, tt.path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(tt.content), 0o600)); err != nil {
				t.Fatal(err)
			}
			p, err := newLocator(quiet()).locate(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			err = startErr(t, Config{DataDir: dir, BinDir: p.dir})
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v\nwant it to say %q", err, tt.want)
			}
			if b, err := os.ReadFile(file); err != nil || string(b) != tt.content {
				t.Errorf("the file was touched: %q, %v", b, err)
			}
		})
	}
}

func TestABrokenSettingIsToldInTheServersWords(t *testing.T) {
	t.Parallel()
	err := startErr(t, Config{NoFsync: true, Settings: map[string]string{"shared_buffers": "nonsense"}})
	if !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("error = %v", err)
	}
}

// As root the helper runs as nobody; as a normal user every other test of this file shows the same already.
func TestANormalUserNeedsNothing(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	var cred *syscall.Credential
	want := os.Geteuid()
	if want == 0 {
		want = 65534
		cred = &syscall.Credential{Uid: 65534, Gid: 65534}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	c := startHelper(t, dir, cred)
	if c.euid != want {
		t.Fatalf("the helper ran as %d, want %d", c.euid, want)
	}
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the helper: %v", err)
	}
	if left := processesIn(t, dir); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

func TestTheLogNamesErrorsAndQuotesNoRow(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	s := start(t, Config{NoFsync: true, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	err := execOn(t.Context(), s, "CREATE TABLE k (v text UNIQUE); INSERT INTO k VALUES ('a-persons-name'), ('a-persons-name')")
	if err == nil {
		t.Fatal("the row was taken twice")
	}
	if err := s.Stop(); err != nil { // everything is written once the server has ended
		t.Fatal(err)
	}
	log := out.String()
	if !strings.Contains(log, "level=WARN") || !strings.Contains(log, "duplicate key value violates unique constraint") {
		t.Errorf("the error is not in the log:\n%s", log)
	}
	if strings.Contains(log, "a-persons-name") {
		t.Errorf("the log quotes a row:\n%s", log)
	}
}
