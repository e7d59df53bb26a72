package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/sourcetest"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

func configMap(colour string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: {colour: %s}\n", colour)
}

// repository is a git repository on disk.
type repository struct {
	testing.TB
	dir string
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{TB: t, dir: filepath.Join(t.TempDir(), "repository")}
	kit.NoError(t, os.Mkdir(r.dir, 0o700))
	r.git("init", "-q", "--initial-branch=main")
	return r
}

func (r *repository) git(args ...string) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "git", append([]string{"-C", r.dir, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// commit commits these files in place of all others.
func (r *repository) commit(files map[string]string) {
	r.Helper()
	old, err := filepath.Glob(filepath.Join(r.dir, "[^.]*"))
	kit.NoError(r, err)
	for _, path := range old {
		kit.NoError(r, os.RemoveAll(path))
	}
	for name, text := range files {
		path := filepath.Join(r.dir, name)
		kit.NoError(r, os.MkdirAll(filepath.Dir(path), 0o700))
		kit.NoError(r, os.WriteFile(path, []byte(text), 0o600))
	}
	r.git("add", "--all")
	r.git("commit", "-q", "--message=change")
}

// TestFollow: over a real broker, works follow a real repository, and nothing is deleted because it is
// missing.
func TestFollow(t *testing.T) {
	running, topics := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "ops", Password: "secret", Role: acl.Source}, {Username: "cluster1", Password: "secret", Role: acl.Agent},
	}}), sourcetest.Topics("ops")
	connection, err := mqtt.New(mqtt.Config{ClientID: "cluster1-agent", Logger: kit.Logger(t),
		Broker: config.Config{BrokerHost: running.Addr, Username: "cluster1", Password: "secret", Topics: topics}})
	kit.NoError(t, err)
	agent, err := sourcetest.NewAgent(sourcetest.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: connection})
	kit.NoError(t, err)
	kit.Run(t, "agent", agent.Run)

	r, dir := newRepository(t), t.TempDir()
	r.commit(map[string]string{"clusters/cluster1/a.yaml": configMap("blue"), "clusters/cluster1/b.yaml": configMap("blue"), "README.md": "about"})
	file := filepath.Join(dir, "ops.yaml")
	kit.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "brokerHost: %s\nusername: ops\npassword: secret\ntopics: {sourceEvents: %s, agentEvents: %s}\n",
		running.Addr, topics.SourceEvents, topics.AgentEvents), 0o600))
	o, err := parse([]string{"--source-id=ops", "--transport-config=" + file, "--state=" + filepath.Join(dir, "ops.db"), "--repository=" + r.dir,
		"--interval=20ms", "--max-deletions=1"}, io.Discard)
	kit.NoError(t, err)
	log := &kit.Log{}
	kit.Run(t, "gitops", func(ctx context.Context) error { return run(ctx, o, log.Logger()) })
	holds := func(want string) {
		t.Helper()
		kit.Eventually(t, "the cluster has "+want, func() error {
			var got []string
			for _, work := range agent.Works() {
				_, colour, _ := strings.Cut(string(work.Spec.Workload.Manifests[0].Raw), `"colour":"`)
				colour, _, _ = strings.Cut(colour, `"`)
				got = append(got, work.Name+"="+colour)
			}
			if strings.Join(got, " ") != want {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
	}
	says := func(text string) {
		t.Helper()
		kit.True(t, "the log says "+text, func() bool { return strings.Contains(log.String(), text) })
	}
	holds("a=blue b=blue")
	r.commit(map[string]string{"clusters/cluster1/a.yaml": configMap("green"), "clusters/cluster1/c.yaml": configMap("blue")})
	holds("a=green b=blue c=blue") // b stays
	says("cluster1/b")
	r.commit(map[string]string{"README.md": "the folder is gone"})
	says("directory not found")
	r.commit(map[string]string{"clusters/cluster1/a.delete": "", "clusters/cluster1/b.delete": "", "clusters/cluster1/c.yaml": configMap("red")})
	says("2 works would be deleted, more than --max-deletions=1: nothing is deleted")
	holds("a=green b=blue c=red")
	kit.NoError(t, os.Rename(r.dir, r.dir+".away"))
	says("repository cannot be read, works stay as they are")
	kit.NoError(t, os.Rename(r.dir+".away", r.dir))
	r.commit(map[string]string{"clusters/cluster1/b.delete": "", "clusters/cluster1/c.yaml": "{", "clusters/cluster1/a.yaml": configMap("grey")})
	holds("a=grey c=red") // a file that cannot be parsed keeps nobody up
}

func TestPlan(t *testing.T) {
	work := func(name, colour string) workv1.ManifestWork {
		p := planOf(map[string][]byte{"cluster1/" + name + ".yaml": []byte(configMap(colour))}, nil)
		if len(p.create) != 1 {
			t.Fatalf("%v", p.errs)
		}
		return *p.create[0]
	}
	there := []workv1.ManifestWork{work("a", "blue"), work("b", "blue")}
	for name, c := range map[string]struct {
		files                                  map[string]string
		create, update, remove, orphans, wrong string
	}{
		"no file":         {orphans: "cluster1/a cluster1/b"},
		"the same":        {files: map[string]string{"cluster1/a.yaml": configMap("blue"), "cluster1/b.yaml": configMap("blue")}},
		"another colour":  {files: map[string]string{"cluster1/a.yaml": configMap("red"), "cluster1/b.yaml": configMap("blue")}, update: "a"},
		"deleted":         {files: map[string]string{"cluster1/a.delete": "", "cluster1/b.yaml": configMap("blue")}, remove: "a"},
		"deleted, new":    {files: map[string]string{"cluster1/c.delete": "", "cluster1/d.yaml": configMap("blue")}, create: "d", orphans: "cluster1/a cluster1/b"},
		"both":            {files: map[string]string{"cluster1/a.delete": "", "cluster1/a.yaml": configMap("red"), "cluster1/b.yaml": configMap("blue")}, wrong: "there are both"},
		"empty":           {files: map[string]string{"cluster1/a.yaml": "# nothing\n", "cluster1/b.yaml": configMap("blue")}, wrong: "has no manifests"},
		"no YAML":         {files: map[string]string{"cluster1/a.yaml": "{", "cluster1/b.yaml": configMap("red")}, update: "b", wrong: "document 1"},
		"another cluster": {files: map[string]string{"cluster2/a.delete": "", "cluster1/a.yaml": configMap("blue"), "cluster1/b.yaml": configMap("blue")}},
		"other files":     {files: map[string]string{"README.md": "x", "cluster1/x/y.yaml": "x", "z.yaml": "x"}, orphans: "cluster1/a cluster1/b"},
	} {
		files := map[string][]byte{}
		for path, text := range c.files {
			files[path] = []byte(text)
		}
		p := planOf(files, there)
		names := func(works []*workv1.ManifestWork) string {
			var list []string
			for _, work := range works {
				list = append(list, work.Name)
			}
			return strings.Join(list, " ")
		}
		got := []string{names(p.create), names(p.update), names(p.remove), strings.Join(p.orphans, " ")}
		if want := []string{c.create, c.update, c.remove, c.orphans}; strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("%s: creates, updates, removes, leaves %q, want %q", name, got, want)
		}
		if text := fmt.Sprint(p.errs); (c.wrong == "") != (len(p.errs) == 0) || !strings.Contains(text, c.wrong) {
			t.Errorf("%s: the errors are %v", name, p.errs)
		}
	}
}

func TestOptions(t *testing.T) {
	if _, err := parse([]string{"--source-id=ops", "--transport-config=t"}, io.Discard); err == nil {
		t.Error("no repository is accepted")
	}
	var help strings.Builder
	if _, _ = parse([]string{"--help"}, &help); !strings.Contains(help.String(), "max-deletions") {
		t.Errorf("--help prints %s", &help)
	}
}

// FuzzPlan: whatever is in a file, only a file .delete deletes.
func FuzzPlan(f *testing.F) {
	f.Add("cluster1/a.yaml", []byte(configMap("blue")))
	f.Add("cluster1/a.yaml", []byte(""))
	f.Add("cluster1/a.delete", []byte(""))
	f.Add("../../etc/x.yaml", []byte("---"))
	f.Fuzz(func(t *testing.T, path string, text []byte) {
		work := workv1.ManifestWork{}
		work.Namespace, work.Name = "cluster1", "a"
		p := planOf(map[string][]byte{path: text}, []workv1.ManifestWork{work})
		if len(p.remove) > 0 && path != "cluster1/a.delete" {
			t.Errorf("%q removes a work", path)
		}
		for _, created := range p.create {
			if path != created.Namespace+"/"+created.Name+".yaml" || len(created.Spec.Workload.Manifests) == 0 {
				t.Errorf("%q creates %s/%s", path, created.Namespace, created.Name)
			}
		}
	})
}
