package deploy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
)

// quickStart is the order in which the roles do what the sections of docs/quickstart.md say.
var quickStart = []struct{ role, heading string }{
	{"operator", "I operate the platform"}, {"operator", "Let a cluster join"},
	{"owner", "I own a cluster"}, {"operator", "Check the way to the cluster and back"},
	{"author", "I write works"}, {"owner", "What is applied, and from whom"},
}

var (
	heading = regexp.MustCompile(`(?m)^##+ `)
	block   = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")
	rollout = regexp.MustCompile(`kubectl -n (\S+) rollout status (statefulset|deployment)/(\S+)`)
)

// TestQuickStart runs the commands of docs/quickstart.md as they stand, and compares what they print.
func TestQuickStart(t *testing.T) {
	text, err := os.ReadFile("../../docs/quickstart.md")
	kit.NoError(t, err)
	sections := map[string]string{}
	for _, section := range heading.Split(string(text), -1) {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	hub, spoke := newCluster(t), newCluster(t)
	hub.helm()
	spoke.helm()
	hub.volume("data") // the StorageClass of the page; simulated nodes have no volumes
	author := &cluster{T: t, Plane: hub.Plane, root: t.TempDir(), path: hub.path}
	kit.NoError(t, os.CopyFS(filepath.Join(author.root, "examples"), os.DirFS("../../examples")))
	kit.NoError(t, os.Symlink(filepath.Join(hub.root, "cluster1.token"), filepath.Join(spoke.root, "cluster1.token"))) // the operator gives it to the owner
	g := &guide{
		shells: map[string]*shell{
			"operator": newShell(hub, "hub.kubeconfig"), "owner": newShell(spoke, "cluster1.kubeconfig"), "author": newShell(author, "hub.kubeconfig"),
		},
		// All that is not run as it stands, and "$broker:8883", which gets the port that the broker has.
		substitutions: []string{
			"make build\n", "", // the programs are in bin/, and their sources are not in the copy
			"=broker.example.com\n", "=127.0.0.1\n", // nobody resolves the name
		},
		// Where the programs of pods listen, which all are on this machine.
		addresses: []string{":8883", "127.0.0.1:0", ":9641", "127.0.0.1:0", ":8443", "127.0.0.1:0"},
	}
	for _, s := range g.shells {
		g.follow(s, sections["# Quick start by role"])
	}
	for _, section := range quickStart {
		if section.role == "author" { // docs/policies.md: for some seconds the API server refuses new works
			kit.Eventually(t, "policies know the kind of works", func() error {
				_, stderr, err := author.try("kubectl apply --dry-run=server -f examples/manifestwork/hello-work-demo.yaml")
				if err != nil {
					err = fmt.Errorf("%w: %s", err, stderr)
				}
				return err
			})
		}
		g.follow(g.shells[section.role], sections[section.heading])
	}
	if all := len(block.FindAllString(string(text), -1)) + 2*len(block.FindAllString(sections["# Quick start by role"], -1)); g.blocks != all || all < 10 {
		t.Errorf("%d of %d blocks were run or compared: add their headings to quickStart", g.blocks, all)
	}
}

// guide is a page that is followed.
type guide struct {
	shells        map[string]*shell // by role
	substitutions []string          // of texts in commands, in pairs
	addresses     []string          // likewise, in what pods run
	blocks        int               // that were run or compared
}

// follow runs the commands of a section.
func (g *guide) follow(s *shell, section string) {
	s.Helper()
	printed := ""
	for _, m := range block.FindAllStringSubmatch(section, -1) {
		g.blocks++
		if m[1] == "text" {
			if !matches(m[2], printed) {
				s.Errorf("the page shows\n%s\nprinted was\n%s", m[2], printed)
			}
			continue
		}
		printed = s.run(strings.NewReplacer(g.substitutions...).Replace(m[2]))
		s.Logf("%s\n%s", m[2], printed)
		for _, workload := range rollout.FindAllStringSubmatch(m[2], -1) {
			g.kubelet(s, workload[1], workload[2], workload[3])
		}
	}
}

// kubelet runs the program of a workload, which simulated nodes do not, and waits until it is ready.
func (g *guide) kubelet(s *shell, namespace, kind, name string) {
	s.Helper()
	objects := s.objectsIn(namespace)
	key := map[string]string{"deployment": "Deployment ", "statefulset": "StatefulSet "}[kind] + name
	var more []string
	account := map[string]string{"work-hub": name, "work-agent": agentSA}[name]
	if account != "" {
		more = []string{"--kubeconfig=" + s.kubeconfig(namespace, account), "--leader-election-namespace=" + namespace}
	}
	p := s.pod(objects, key, strings.NewReplacer(g.addresses...), more...)
	if account != "" {
		p.log.Await(s, `"connected to the broker"`)
		return
	}
	at := p.log.Await(s, `"broker ready","addresses":\["([^"]+)"\]`)
	g.substitutions = append(g.substitutions, "$broker:8883", at)
	g.addresses = append([]string{"work-broker.workwire-broker.svc:8883", at}, g.addresses...)
}

// objectsIn returns the workloads of a namespace and what they mount, by kind and name.
func (c *cluster) objectsIn(namespace string) map[string]*unstructured.Unstructured {
	c.Helper()
	list := &unstructured.UnstructuredList{}
	kit.NoError(c, yaml.Unmarshal([]byte(c.run("kubectl get deployments,statefulsets,configmaps,secrets -o yaml -n "+namespace)), list))
	objects := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		objects[list.Items[i].GetKind()+" "+list.Items[i].GetName()] = &list.Items[i]
	}
	return objects
}

var (
	age    = regexp.MustCompile(`\b\d[\d.]*(µs|ms|s|m|h|d)(\d+[smh])?\b`)
	spaces = regexp.MustCompile(`[ \t]+`)
)

// matches reports whether printed ends with what a page shows, where … stands for anything. Ages and widths
// of columns are not compared.
func matches(shown, printed string) bool {
	plain := func(text string) string {
		return spaces.ReplaceAllString(age.ReplaceAllString(strings.TrimSpace(text), "…"), " ")
	}
	lines := strings.ReplaceAll(regexp.QuoteMeta(plain(shown)), "…", ".*")
	return regexp.MustCompile(`(^|\n)` + lines + `$`).MatchString(strings.ReplaceAll(plain(printed), " \n", "\n"))
}

// shell is a bash in the copy of a cluster.
type shell struct {
	*cluster
	in     io.Writer
	out    *bufio.Reader
	errors kit.Log
}

// ended is what a shell prints after a block.
const ended = "end of the block"

// newShell starts a shell that knows no programs of ours and no cluster, as that of somebody who opens a terminal.
// kubeconfig is the name of the file that its user has.
func newShell(c *cluster, kubeconfig string) *shell {
	c.Helper()
	kit.NoError(c, errors.Join(
		os.Symlink(filepath.Join(repository(c.T), "bin"), filepath.Join(c.root, "bin")),
		os.Symlink(c.Kubeconfig, filepath.Join(c.root, kubeconfig)),
	))
	ctx, cancel := context.WithTimeout(context.Background(), 3*kit.Patience)
	cmd := c.command(ctx)
	cmd.Env = append(cmd.Env, "KUBECONFIG=", "PATH="+strings.ReplaceAll(c.path, repository(c.T)+"/bin:", ""))
	s := &shell{cluster: c}
	cmd.Stderr = &s.errors
	in, err := cmd.StdinPipe()
	kit.NoError(c, err)
	out, err := cmd.StdoutPipe()
	kit.NoError(c, err)
	s.in, s.out = in, bufio.NewReader(out)
	kit.NoError(c, cmd.Start())
	c.Cleanup(func() {
		defer cancel()
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			c.Errorf("bash: %v", err)
		}
	})
	return s
}

// run runs commands, which have no input, and returns what they print.
func (s *shell) run(commands string) (printed string) {
	s.Helper()
	s.write("block.sh", commands)
	_, err := io.WriteString(s.in, ". ./block.sh </dev/null; echo '"+ended+"'\n")
	kit.NoError(s, err)
	for {
		line, err := s.out.ReadString('\n')
		if line == ended+"\n" {
			return printed
		}
		printed += line
		if err != nil {
			s.Fatalf("%s: %v\n%s%s", commands, err, printed, s.errors.String())
		}
	}
}
