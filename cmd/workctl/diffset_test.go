package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/ctl/preview"
	"github.com/workwire/workwire/pkg/hub/previews"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestDiffSetFlags: what is wrong is said before anything is asked. test/preview asks real clusters.
func TestDiffSetFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "set.yaml")
	kit.NoError(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"), 0o600))
	transport := "--transport=" + writeTransport(t, "127.0.0.1:1", "secret")
	for want, args := range map[string][]string{
		"name a set, or give -f with one":                   nil,
		"--record is about the stored set":                  {"till", "-f=" + file, "--record"},
		"give --clusters or --sample, not both":             {"till", "--clusters=a", "--sample=1"},
		"--at-once must be at least 1, got 0":               {"till", "--at-once=0"},
		"--timeout must be positive, got 0s":                {"till", "--timeout=0s"},
		`--sample: "0%" must be a number`:                   {"till", "--sample=0%"},
		"--seal-keys needs --signing-key":                   {"till", "--seal-keys=keys"},
		"accepts at most 1 arg":                             {"till", "other"},
		"the files have no ManifestWorkReplicaSet":          {"-f=" + file, transport, "--kubeconfig=" + plane.Kubeconfig},
		`manifestworkreplicasets.work.open-cluster-managem`: {"nope", transport, "--kubeconfig=" + plane.Kubeconfig},
	} {
		if out, err := run(t.Context(), t, append([]string{"diff", "set"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q\n%s", args, err, want, out)
		}
	}
}

func TestJudge(t *testing.T) {
	leaving := &preview.Plan{Leaving: []preview.Leaving{{Cluster: "a"}}}
	for name, c := range map[string]struct {
		plan   *preview.Plan
		record previews.Record
		want   int
	}{
		"nothing":             {&preview.Plan{}, previews.Record{Clusters: 2, Asked: 2, Answered: 2}, 0},
		"a sample":            {&preview.Plan{}, previews.Record{Clusters: 2, Asked: 1, Answered: 1}, 0},
		"a change":            {&preview.Plan{}, previews.Record{Clusters: 2, Changed: 1, Failed: 1, Away: 1}, cli.ExitNo},
		"a deletion":          {&preview.Plan{}, previews.Record{Deleted: 1}, cli.ExitNo},
		"a refusal":           {&preview.Plan{}, previews.Record{Refused: 1}, cli.ExitNo},
		"a work that goes":    {leaving, previews.Record{}, cli.ExitNo},
		"one that can't tell": {&preview.Plan{}, previews.Record{Clusters: 2, Failed: 1, Away: 1}, cli.ExitFailed},
		"one is away":         {&preview.Plan{}, previews.Record{Clusters: 2, Answered: 1, Away: 1}, cli.ExitTimeout},
	} {
		got := 0
		if coded, ok := errors.AsType[*cli.Error](judge(c.plan, &c.record)); ok {
			got = coded.ExitCode()
		}
		if got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

// TestOneIsOne: what is said of one cluster, work or field is not what is said of several.
func TestOneIsOne(t *testing.T) {
	var out bytes.Buffer
	showObjects(&out, cli.Style{}, []wire.DryRunObject{{Kind: "ConfigMap", Name: "a", Result: wire.DryRunChanged, OmittedFields: 1}})
	f, one := diffSetFlags{}, &preview.Plan{Set: &workv1alpha1.ManifestWorkReplicaSet{}}
	kit.NoError(t, f.show(&cli.Options{Streams: cli.Streams{Out: &out}}, one, &previews.Record{Clusters: 1, Asked: 1, Answered: 1, Away: 1, Refused: 1, Changed: 1, Deleted: 1}, ""))
	for _, err := range []error{
		judge(one, &previews.Record{Clusters: 1, Failed: 1}), judge(one, &previews.Record{Clusters: 1, Away: 1}),
		verdict([]direct.Difference{{Objects: []wire.DryRunObject{{Result: wire.DryRunCreated}}}}),
	} {
		out.WriteString(err.Error() + "\n")
	}
	for _, want := range []string{
		"and 1 more field\n", "of 1 cluster 1 was asked and 1 has answered, 1 is away; 1 refuses something; on one cluster at most 1 object would be changed and 1 deleted\n",
		"1 cluster cannot tell\n", "1 cluster is away\n", "1 of 1 work would change something",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s, want %q", out.String(), want)
		}
	}
}

func TestShowGroup(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for want, g := range map[string]preview.Group{
		"1 cluster: a\n  - v1 ConfigMap ns/old  would be deleted\n": {Clusters: names[:1], State: preview.Answered,
			Objects: []wire.DryRunObject{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "old", Result: wire.DryRunRemoved}}},
		"7 clusters: a, b, c, d, e and 2 more  = nothing would change\n": {Clusters: names, State: preview.Answered},
		"5 clusters: a, b, c, d, e  away\n":                              {Clusters: names[:5], State: preview.Away},
		"2 clusters: a, b  ✗ no key\n":                                   {Clusters: names[:2], State: preview.Failed, Message: "no\nkey"},
	} {
		var out bytes.Buffer
		showGroup(&out, cli.Style{}, &g)
		if got := out.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestProgressTo: now and then a line, and none at the end.
func TestProgressTo(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	progress := progressTo(&out, func() time.Time { return now })
	for done := 1; done <= 10; done++ {
		now = now.Add(progressInterval / 4)
		progress(done, 10)
	}
	now = now.Add(progressInterval)
	progress(10, 10)
	if got := out.String(); got != "4 of 10 clusters asked\n8 of 10 clusters asked\n" {
		t.Error(got)
	}
}
