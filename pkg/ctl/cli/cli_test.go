package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/test/kit"
)

// TestInteractive: a terminal is one also where reading it ends with a context.
func TestInteractive(t *testing.T) {
	terminal, err := os.Open("/dev/ptmx")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	for in, want := range map[io.Reader]bool{terminal: true, strings.NewReader(""): false} {
		o := cli.Options{Streams: cli.Streams{In: command.Input(t.Context(), in)}}
		if o.Interactive() != want {
			t.Errorf("%T: want %v", in, want)
		}
	}
}

func TestRows(t *testing.T) {
	for _, c := range []struct {
		style cli.Style
		width int
		want  string
	}{
		{cli.Style{}, 0, "NAME        READY  MESSAGE\nweb         no     line and  [2J escape\ngrößer-als  yes    -\n"},
		{cli.Style{}, 24, "NAME        READY  MESS…\nweb         no     line…\ngrößer-als  yes    -\n"},
		{cli.Style{}, 6, "NAME  \nweb   \ngröße…\n"},
		{cli.Style{Colors: true}, 0, "\x1b[1mNAME\x1b[0m        \x1b[1mREADY\x1b[0m  \x1b[1mMESSAGE\x1b[0m\n" +
			"web         \x1b[31mno\x1b[0m     line and  [2J escape\ngrößer-als  yes    -\n"},
	} {
		rows := cli.Rows{Header: []string{"NAME", "READY", "MESSAGE"}}
		rows.Add("web", cli.Cell{Text: "no", Tone: cli.Bad}, "line\nand \x1b[2J escape")
		rows.Add("größer-als", "yes", "")
		var out bytes.Buffer
		kit.NoError(t, rows.Write(&out, c.style, c.width))
		lines := strings.Split(out.String(), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimRight(line, " ")
		}
		want := strings.Split(c.want, "\n")
		for i, line := range want {
			want[i] = strings.TrimRight(line, " ")
		}
		if got, want := strings.Join(lines, "\n"), strings.Join(want, "\n"); got != want {
			t.Errorf("width %d:\n%q, want\n%q", c.width, got, want)
		}
	}
}

// TestRowsAgain checks that rows which are written later stand below the columns of the first ones.
func TestRowsAgain(t *testing.T) {
	rows := cli.Rows{Header: []string{"NAME", "READY"}}
	rows.Add("longest", "yes")
	var out bytes.Buffer
	kit.NoError(t, rows.Write(&out, cli.Style{}, 0))
	rows.Rows = nil
	rows.Add("web", "no")
	kit.NoError(t, rows.Write(&out, cli.Style{}, 0))
	if want := "NAME     READY\nlongest  yes\nweb      no\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestFormatFlag checks which values of -o are taken, and that the error for others lists them.
func TestFormatFlag(t *testing.T) {
	all := []cli.Format{cli.Table, cli.JSON, cli.JSONPath}
	for value, c := range map[string]struct {
		formats []cli.Format
		want    string // in the error
	}{
		"table":                  {all, ""},
		"jsonpath={.a}":          {all, ""},
		"jsonpath=":              {all, ""},
		"xml":                    {all, "must be one of table, json, jsonpath=TEMPLATE"},
		"jsonpath":               {all, "must be one of table, json, jsonpath=TEMPLATE"},
		"json={.a}":              {all, "must be one of table, json, jsonpath=TEMPLATE"},
		"jsonpath={.b}":          {all[:2], "must be one of table, json"},
		"jsonpath={.items[?(@.}": {all, "parse the template"},
	} {
		var f cli.FormatFlag
		f.Add(&cobra.Command{}, c.formats...)
		err := f.Set(value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", value, err, c.want)
		}
	}
}

func TestWriteObjects(t *testing.T) {
	work := func(name string) runtime.Object {
		w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 5 << 30, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
		w.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWork"))
		return w
	}
	for _, c := range []struct {
		format  cli.Format
		single  bool
		objects []runtime.Object
		want    []string
	}{
		{cli.Name, false, []runtime.Object{work("a"), work("b")}, []string{"manifestwork.work.open-cluster-management.io/a\nmanifestwork.work.open-cluster-management.io/b\n"}},
		{cli.JSON, true, []runtime.Object{work("a")}, []string{`"kind": "ManifestWork"`, `"name": "a"`}},
		{cli.JSON, false, nil, []string{`"kind": "List"`, `"items": []`}},
		{"jsonpath={.items[*].metadata.name}{.nothing}", false, []runtime.Object{work("a"), work("b")}, []string{"a b"}},
		{"jsonpath={.metadata.name} {.metadata.generation}", true, []runtime.Object{work("a")}, []string{"a 5368709120"}},
		{cli.YAML, false, []runtime.Object{work("a")}, []string{"kind: List", "- apiVersion: work.open-cluster-management.io/v1"}},
	} {
		var out bytes.Buffer
		kit.NoError(t, cli.WriteObjects(&out, c.format, c.single, c.objects...))
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "managedFields") {
				t.Errorf("%s: %s, want %q", c.format, out.String(), want)
			}
		}
	}
}

func TestAPIError(t *testing.T) {
	works := schema.GroupResource{Group: "work.open-cluster-management.io", Resource: "manifestworks"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(works, "w", errors.New("no")), "ask an administrator"},
		{apierrors.NewUnauthorized("no"), "log in again"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}, "does not answer"},
		{apierrors.NewGenericServerResponse(404, "get", works, "w", "", 0, true), "has no Workwire"},
		{apierrors.NewNotFound(works, "w"), ""},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), ""},
	} {
		err := cli.APIError("get the work", c.err)
		if got := err.Error(); !strings.HasPrefix(got, "get the work: ") || strings.Contains(got, "What to do: ") != (c.want != "") ||
			!strings.Contains(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if cli.APIError("x", nil) != nil {
		t.Error("no error is an error")
	}
}

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, users: [{name: u, user: {}}],
clusters: [{name: a, cluster: {server: "https://a"}}, {name: b, cluster: {server: "https://b"}}],
contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u, namespace: shop}}]}`

// TestOptions checks what kubeconfig, context, namespace and transport file the flags and the
// environment choose.
func TestOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	kit.NoError(t, os.WriteFile(path, []byte(kubeconfig), 0o600))
	t.Setenv("KUBECONFIG", path)
	t.Setenv(cli.TransportEnv, "")
	for _, c := range []struct {
		options         cli.Options
		host, namespace string
	}{
		{cli.Options{}, "https://a", "default"},
		{cli.Options{Kubeconfig: path, Context: "b"}, "https://b", "shop"},
		{cli.Options{Context: "b", Namespace: "other"}, "https://b", "other"},
	} {
		config, err := c.options.RESTConfig()
		kit.NoError(t, err)
		namespace, err := c.options.HubNamespace()
		kit.NoError(t, err)
		if config.Host != c.host || namespace != c.namespace {
			t.Errorf("%+v: %s, %s", c.options, config.Host, namespace)
		}
	}
	for want, options := range map[string]cli.Options{
		"--context":               {Context: "nope"},
		"--kubeconfig":            {Kubeconfig: "/nowhere"},
		"--transport is required": {},
		"(--transport)":           {Transport: "/nowhere"},
	} {
		_, err := options.RESTConfig()
		if err == nil {
			_, err = options.Broker()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", options, err, want)
		}
	}
}
