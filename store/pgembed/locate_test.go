package pgembed

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fakePrograms makes a folder of programs that say they are of the major version.
func fakePrograms(t *testing.T, dir string, major int) string {
	t.Helper()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + strconv.Itoa(major) + ".3 (Test)'\n"
	err := os.MkdirAll(dir, 0o755)
	for _, name := range []string{"postgres", "initdb"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755)) //nolint:gosec // a program
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// place is a machine made up for a test: what is on the PATH, in Debian's place, to download and to install.
type place struct {
	path, debian      []int
	download, install int // 0: fails
	want              int // the major version wanted; 0: any
}

func (p place) locate(t *testing.T) (major int, asked []string, err error) {
	t.Helper()
	root := t.TempDir()
	l := locator{log: quiet(), bins: filepath.Join(root, "debian", "*", "bin")}
	l.path = func(string) (string, error) {
		for _, m := range p.path {
			return filepath.Join(fakePrograms(t, filepath.Join(root, "path"), m), "postgres"), nil
		}
		return "", errors.New("not on the PATH")
	}
	for _, m := range p.debian {
		fakePrograms(t, filepath.Join(root, "debian", strconv.Itoa(m), "bin"), m)
	}
	l.fetch = func(context.Context, int) (string, error) {
		asked = append(asked, "download")
		if p.download == 0 {
			return "", errors.New("no network")
		}
		return fakePrograms(t, filepath.Join(root, "cache"), p.download), nil
	}
	l.install = func(context.Context) error {
		asked = append(asked, "install")
		if p.install == 0 {
			return errors.New("not a Debian system")
		}
		fakePrograms(t, filepath.Join(root, "debian", "new", "bin"), p.install)
		return nil
	}
	progs, err := l.locate(t.Context(), p.want)
	return progs.major, asked, err
}

func TestWhereThePostgresProgramsAreTakenFrom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says  string
		place place
		major int
		asked string
	}{
		{"the PATH comes before Debian's place", place{path: []int{15}, debian: []int{17}}, 15, ""},
		{"in Debian's place the newest is taken", place{debian: []int{14, 17, 15}}, 17, ""},
		{"a folder's own version comes before the newest", place{debian: []int{15, 17}, want: 15}, 15, ""},
		{"a folder's own version comes before the PATH", place{path: []int{17}, debian: []int{15}, want: 15}, 15, ""},
		{"a version that is too old does not count", place{path: []int{12}, debian: []int{16}}, 16, ""},
		{"nothing here: downloaded", place{download: 17}, 17, "download"},
		{"a folder's own version is downloaded when another is here", place{path: []int{17}, download: 15, want: 15}, 15, "download"},
		{"only another version to be had: given, for the caller to refuse", place{path: []int{17}, want: 15}, 17, "download"},
		{"no network: the package", place{install: 15}, 15, "download install"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			major, asked, err := tt.place.locate(t)
			if err != nil || major != tt.major || strings.Join(asked, " ") != tt.asked {
				t.Errorf("major %d, asked %v, error %v; want major %d, asked %q", major, asked, err, tt.major, tt.asked)
			}
		})
	}
	_, _, err := place{}.locate(t)
	if err == nil || !strings.Contains(err.Error(), "apt-get install postgresql") || !strings.Contains(err.Error(), "no network") {
		t.Errorf("nothing anywhere: error = %v; want what to install and why the download failed", err)
	}
}

func TestLocateFindsTheProgramsOfThisMachine(t *testing.T) {
	t.Parallel()
	dir, err := Locate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newPrograms(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

func TestABinDirWithoutProgramsIsRefused(t *testing.T) {
	t.Parallel()
	if err := startErr(t, Config{BinDir: t.TempDir()}); !strings.Contains(err.Error(), `holds no program "postgres"`) {
		t.Errorf("error = %v", err)
	}
}

func TestVersionsAreRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line  string
		major int
	}{
		{"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", 15},
		{"postgres (PostgreSQL) 18beta1", 18},
		{"postgres (PostgreSQL) 17", 17},
		{"postgres (PostgreSQL) 9.6.24", 0},
		{"postgres (EnterpriseDB) 15.1", 0},
		{"", 0},
	} {
		major, err := parseMajor(tt.line)
		if major != tt.major || (err != nil) != (tt.major == 0) {
			t.Errorf("parseMajor(%q) = %d, %v; want %d", tt.line, major, err, tt.major)
		}
	}
}

// archive serves a download as the library expects one: a zip that holds a .txz, and its checksum beside it.
func archive(t *testing.T, checksum func(sum string) string) *httptest.Server {
	t.Helper()
	txz, err := os.ReadFile(filepath.Join("testdata", "programs.txz"))
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	f, err := z.Create("postgres-test.txz")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(txz)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(jar.Bytes())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "-17.5.0.jar"):
			_, _ = w.Write(jar.Bytes())
		case strings.HasSuffix(r.URL.Path, "-17.5.0.jar.sha256"):
			_, _ = w.Write([]byte(checksum(hex.EncodeToString(sum[:]))))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

func TestADownloadIsUnpackedOnceAndStartsNothing(t *testing.T) {
	t.Parallel()
	srv := archive(t, func(sum string) string { return sum })
	f := fetcher{log: quiet(), cache: filepath.Join(t.TempDir(), "cache"), repository: srv.URL}
	dir, err := f.fetch(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := newPrograms(t.Context(), dir); err != nil || p.major != 17 {
		t.Errorf("programs = %+v, %v", p, err)
	}
	left, err := filepath.Glob(filepath.Join(f.cache, "fetch-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
	srv.Close()
	if again, err := f.fetch(t.Context(), 17); err != nil || again != dir {
		t.Errorf("the second time, without a network: %q, %v", again, err)
	}
}

func TestDownloadsThatFail(t *testing.T) {
	t.Parallel()
	good := func(sum string) string { return sum }
	for _, tt := range []struct {
		says     string
		checksum func(string) string
		major    int
		want     string
	}{
		{"a checksum that differs", func(string) string { return strings.Repeat("0", 64) }, 17, "checksums do not match"},
		{"a version that is not served", good, 16, "no version found matching 16.9.0"},
		{"a version that nobody knows", good, 99, "no download of PostgreSQL 99 is known"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			f := fetcher{log: quiet(), cache: t.TempDir(), repository: archive(t, tt.checksum).URL}
			if dir, err := f.fetch(t.Context(), tt.major); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("fetch = %q, %v; want an error that says %q", dir, err, tt.want)
			}
		})
	}
}

func TestThePackageIsInstalledAsRootOnDebianOnly(t *testing.T) {
	t.Parallel()
	install := "apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold postgresql"
	for _, tt := range []struct {
		says     string
		debian   bool
		euid     int
		failures int // of the first runs
		ran      []string
		wantErr  string
	}{
		{"elsewhere nothing is run", false, 0, 0, nil, "not a Debian system"},
		{"a normal user runs nothing", true, 1000, 0, nil, "only root"},
		{"root installs", true, 0, 0, []string{install}, ""},
		{"without package lists they are fetched first", true, 0, 1, []string{install, "apt-get update", install}, ""},
		{"no lists to be had", true, 0, 9, []string{install, "apt-get update"}, "failed"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if tt.debian {
				if err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755),
					os.WriteFile(filepath.Join(root, "etc/debian_version"), []byte("12.0\n"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			var ran []string
			i := installer{log: quiet(), root: root, euid: tt.euid, run: func(_ context.Context, _ []string, name string, args ...string) error {
				ran = append(ran, name+" "+strings.Join(args, " "))
				if len(ran) <= tt.failures {
					return errors.New("failed")
				}
				return nil
			}}
			err := i.install(t.Context())
			if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error = %v, want %q", err, tt.wantErr)
			}
			if !slices.Equal(ran, tt.ran) {
				t.Errorf("ran %q, want %q", ran, tt.ran)
			}
			conf, err := os.ReadFile(filepath.Join(root, "etc/postgresql-common/createcluster.conf"))
			if len(tt.ran) > 0 && (err != nil || !strings.Contains(string(conf), "create_main_cluster = false")) {
				t.Errorf("createcluster.conf = %q, %v; want no cluster of the package's own", conf, err)
			}
		})
	}
}
