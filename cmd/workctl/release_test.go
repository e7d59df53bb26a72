package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/test/kit"
)

// shell runs a script in the root of the repository with $DIR as its directory for results.
func shell(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "DIR="+dir, "KREW_ROOT="+dir+"/plugins", "PATH="+dir+"/plugins/bin:"+os.Getenv("PATH"), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustShell(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := shell(t, dir, script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// TestManPages checks that every command has a page with all its flags and the date that is asked for, and that man
// reads it without a warning.
func TestManPages(t *testing.T) {
	kit.Man.Require(t)
	dir := t.TempDir()
	mustShell(t, dir, "SOURCE_DATE_EPOCH=0 hack/man.sh $DIR v1.2.3")
	want := map[string]bool{}
	page := func(name string, flags *pflag.FlagSet) {
		want[name+".1"] = true
		text, err := os.ReadFile(filepath.Join(dir, "man1", name+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		if !bytes.Contains(text, []byte(`"Jan 1970" "Workwire v1.2.3"`)) {
			t.Errorf("%s.1 has another date or version", name)
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !bytes.Contains(text, []byte(`--`+f.Name+`\fP`)) {
				t.Errorf("%s.1 does not name --%s", name, f.Name)
			}
		})
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		page(strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.LocalFlags())
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" {
				visit(sub)
			}
		}
	}
	root := newCommand("workctl", cli.Streams{})
	root.InitDefaultCompletionCmd()
	visit(root)
	for _, name := range []string{"work-agent", "work-agent-health", "work-broker", "work-broker-health", "work-broker-passwd", "work-hub", "work-hub-health"} {
		page(name, &pflag.FlagSet{})
	}
	found, err := os.ReadDir(filepath.Join(dir, "man1"))
	kit.NoError(t, err)
	for _, file := range found {
		if !want[file.Name()] {
			t.Errorf("%s is about no command", file.Name())
		}
	}
	if out := mustShell(t, dir, "for page in $DIR/man1/*; do man --warnings -E UTF-8 -l -Tutf8 -Z $page 2>&1 >/dev/null; done"); out != "" {
		t.Errorf("man warns:\n%s", out)
	}
	if out := mustShell(t, dir, "MANPATH=$DIR MANWIDTH=100 man workctl-get"); !strings.Contains(out, "workctl-get - List works, clusters or sets") {
		t.Errorf("man workctl-get shows\n%s", out)
	}
}

// krew is the module of the program that reads the manifest. It is no dependency.
const krew = "sigs.k8s.io/krew/cmd/krew@v0.4.4"

// TestKrew installs workctl with krew from an archive and the manifest of a release, and runs it through kubectl.
func TestKrew(t *testing.T) {
	if os.Getenv("WORKWIRE_TEST_ALL") == "" {
		t.Skip("left out: needs krew; make check builds it")
	}
	dir := t.TempDir()
	mustShell(t, dir, "cd $DIR && GOBIN=$DIR go install "+krew)
	if out, err := shell(t, dir, "hack/krew.sh v1.2.3 $DIR"); err == nil || !strings.Contains(out, "has no archive workwire_v1.2.3_OS_ARCH.tar.gz") {
		t.Errorf("without archives: %v, %s", err, out)
	}
	archive := fmt.Sprintf("$DIR/workwire_v1.2.3_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)
	mustShell(t, dir, "mkdir $DIR/files; go build -o $DIR/files/workctl ./cmd/workctl; cp LICENSE $DIR/files; tar -C $DIR/files -czf "+archive+" .")
	mustShell(t, dir, "cp "+archive+" $DIR/workwire_v1.2.3_plan9_386.tar.gz; hack/krew.sh v1.2.3 $DIR >$DIR/work.yaml")
	text, err := os.ReadFile(filepath.Join(dir, "work.yaml"))
	kit.NoError(t, err)
	var plugin struct {
		Spec struct {
			Platforms []struct {
				Selector    struct{ MatchLabels map[string]string }
				URI, SHA256 string
			}
		}
	}
	kit.NoError(t, yaml.Unmarshal(text, &plugin))
	if len(plugin.Spec.Platforms) != 2 {
		t.Errorf("platforms %+v", plugin.Spec.Platforms)
	}
	for _, p := range plugin.Spec.Platforms {
		name := fmt.Sprintf("workwire_v1.2.3_%s_%s.tar.gz", p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"])
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || p.SHA256 != fmt.Sprintf("%x", sha256.Sum256(data)) || p.URI != "https://github.com/workwire/workwire/releases/download/v1.2.3/"+name {
			t.Errorf("%v: %+v", err, p)
		}
	}
	install := "$DIR/krew install --manifest=$DIR/work.yaml --archive=" + archive + " </dev/null"
	out := mustShell(t, dir, install)
	if !strings.Contains(out, "Installed plugin: work") {
		t.Errorf("krew says\n%s", out)
	}
	if out := mustShell(t, dir, "bin/kubectl work get --help"); !strings.Contains(out, "Usage:\n  kubectl work get") || !strings.Contains(out, "  kubectl work get clusters") {
		t.Errorf("the help is\n%s", out)
	}
	t.Setenv("KUBECONFIG", plane.Kubeconfig)
	if out := mustShell(t, dir, "bin/kubectl work get works -A -o name; bin/kubectl plugin list"); !strings.Contains(out, "kubectl-work") {
		t.Errorf("kubectl says\n%s", out)
	}
	if out, err := shell(t, dir, "rm -r $KREW_ROOT; echo >>"+archive+"; "+install); err == nil || !strings.Contains(out, "checksum") {
		t.Errorf("an archive with other content: %v\n%s", err, out)
	}
}
