package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/tail"
	"github.com/workwire/workwire/test/kit"
)

func TestTailCommand(t *testing.T) {
	for want, args := range map[string][]string{
		"--as must be":                {"--as=hub"},
		"--as=agent needs":            {"--as=agent"},
		"--kind must be some of spec": {"--kind=spec,work"},
		"--transport is required":     {"--transport="},
		"must be one of table, wide, json, yaml, jsonpath=TEMPLATE": {"-o=name"},
		"none: no such file or directory":                           {"--transport=none"},
	} {
		t.Setenv(cli.TransportEnv, "")
		if out, err := run(t.Context(), t, append([]string{"tail"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	e := tail.Event{Received: at, Sent: at.Add(-7 * time.Millisecond), Topic: "a/b", Kind: "status", Source: "hub1", Cluster: "c1", Work: "web", Generation: 2, Size: 900,
		Summary: "Applied=\x1b[2JTrue"}
	for format, want := range map[cli.Format]string{
		cli.Table: "03:04:05.006 status        hub1 c1 web gen 2 900B +7ms Applied= [2JTrue\n",
		cli.Wide:  "03:04:05.006 status        hub1 c1 web gen 2 900B +7ms Applied= [2JTrue topic a/b uid - digest -\n",
		cli.JSON: `{"received":"2026-01-02T03:04:05.006Z","sent":"2026-01-02T03:04:04.999Z","topic":"a/b","kind":"status","source":"hub1","cluster":"c1",` +
			`"work":"web","generation":2,"size":900,"summary":"Applied=\u001b[2JTrue"}` + "\n",
		cli.YAML: "---\ncluster: c1\ngeneration: 2\nkind: status\nreceived: \"2026-01-02T03:04:05.006Z\"\nsent: \"2026-01-02T03:04:04.999Z\"\n" +
			"size: 900\nsource: hub1\nsummary: \"Applied=\\e[2JTrue\"\ntopic: a/b\nwork: web\n",
		`jsonpath={.kind} {.work}{"\n"}`: "status web\n",
	} {
		var out bytes.Buffer
		kit.NoError(t, printEvent(&cli.Options{Streams: cli.Streams{Out: &out}}, format, e))
		if out.String() != want {
			t.Errorf("-o %s prints %q, want %q", format, out.String(), want)
		}
	}
}
