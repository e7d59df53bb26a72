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
		"--as must be":                    {"--as=hub"},
		"--as=agent needs":                {"--as=agent"},
		"--kind must be some of spec":     {"--kind=spec,work"},
		"--transport is required":         {"--transport="},
		"must be one of table, json":      {"-o=yaml"},
		"none: no such file or directory": {"--transport=none"},
	} {
		t.Setenv(cli.TransportEnv, "")
		if out, err := run(t.Context(), t, append([]string{"tail"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
	var out bytes.Buffer
	o := &cli.Options{Streams: cli.Streams{Out: &out}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	e := tail.Event{Received: at, Sent: at.Add(-7 * time.Millisecond), Kind: "status", Source: "hub1", Cluster: "c1", Work: "web", Generation: 2, Size: 900, Summary: "Applied=\x1b[2JTrue"}
	kit.NoError(t, printEvent(o, cli.Table, e))
	kit.NoError(t, printEvent(o, cli.JSON, e))
	if want := "03:04:05.006 status        hub1 c1 web gen 2 900B +7ms Applied= [2JTrue\n{\"received\":"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}
