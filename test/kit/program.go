package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Program is a program that some tests run and that make build does not build. hack/needs.sh knows the Debian
// packages; hack/helm.sh builds Helm, which takes minutes.
type Program string

// Programs.
const (
	Mosquitto  Program = "mosquitto"
	Prometheus Program = "prometheus"
	Promtool   Program = "promtool"
	PostgreSQL Program = "postgres"
	Chromium   Program = "chromium"
	HAProxy    Program = "haproxy"
	Helm       Program = "helm"
	Man        Program = "man"
	OpenSSL    Program = "openssl"
)

// Find returns the path of p. It searches the directories for system programs too, and Debian's of
// PostgreSQL, which are not on every PATH. ok is false if p is not installed, or the environment variable
// WORKWIRE_TEST_WITHOUT, a list with commas, names it.
func (p Program) Find() (path string, ok bool) {
	if slices.Contains(strings.Split(os.Getenv("WORKWIRE_TEST_WITHOUT"), ","), string(p)) {
		return "", false
	}
	candidates := []string{string(p), "/usr/sbin/" + string(p), "/usr/local/sbin/" + string(p)}
	if p == PostgreSQL {
		installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		slices.Reverse(installed) // the newest first
		candidates = append(installed, candidates...)
	}
	if p == Helm { // of the version that hack/helm.sh builds, or the one that it is told to use
		cache, _ := os.UserCacheDir()
		candidates, _ = filepath.Glob(filepath.Join(cache, "workwire", "helm-*", "helm"))
		slices.Reverse(candidates)
		if named := os.Getenv("WORKWIRE_HELM"); named != "" {
			candidates = []string{named}
		}
	}
	for _, name := range candidates {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// Require returns the path of p. Without p it skips the test, and hack/testrun says so at the end; with
// the environment variable WORKWIRE_TEST_ALL, which make check sets, it fails the test.
func (p Program) Require(t testing.TB) string {
	t.Helper()
	path, ok := p.Find()
	switch {
	case ok:
	case os.Getenv("WORKWIRE_TEST_ALL") != "":
		t.Fatalf("%s is not installed; make check INSTALL=1 installs it on Debian", p)
	case p == Helm:
		t.Skipf("left out: needs %s; hack/helm.sh builds it", p)
	default:
		t.Skipf("left out: needs %s; hack/needs.sh test names the Debian package", p)
	}
	return path
}
