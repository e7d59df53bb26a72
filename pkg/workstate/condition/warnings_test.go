package condition

import (
	"fmt"
	"strings"
	"testing"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestWarnings(t *testing.T) {
	complete := `Applied=True AppliedManifestComplete "Apply manifest complete" @3`
	warned := `Applied=True AppliedManifestComplete "Apply manifest complete; warnings: unknown field \"spec.a\"; deprecated" @3`
	texts := []string{`unknown field "spec.a"`, "deprecated"}
	report := func(previous *workv1.ManifestWorkStatus, generation int64, m Manifest, warnings ...string) *workv1.ManifestWorkStatus {
		m.Meta = named(0, "a")
		status := WorkStatus(Input{Generation: generation, Manifests: []Manifest{m, {Meta: named(1, "b")}}, Warnings: warnings, Previous: previous, Now: later})
		return &status
	}
	before := report(nil, 3, Manifest{Warnings: texts})
	for name, c := range map[string]struct {
		status         *workv1.ManifestWorkStatus
		manifest, work string
	}{
		"none":                      {report(nil, 3, Manifest{}), complete, `Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @3`},
		"of a manifest":             {before, warned, `Applied=True AppliedManifestWorkComplete "Apply manifest work complete; warnings: see Applied of 1 of 2 manifests" @3`},
		"kept":                      {report(before, 3, Manifest{KeepWarnings: true}), warned, `Applied=True AppliedManifestWorkComplete "Apply manifest work complete; warnings: see Applied of 1 of 2 manifests" @3`},
		"not kept":                  {report(before, 3, Manifest{}), complete, `Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @3`},
		"not of another generation": {report(report(nil, 2, Manifest{Warnings: texts}), 3, Manifest{KeepWarnings: true}), complete, `Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @3`},
		"of the work": {report(nil, 3, Manifest{}, "c matches nothing"), complete,
			`Applied=True AppliedManifestWorkComplete "Apply manifest work complete; warnings: c matches nothing" @3`},
		"of both, failed": {report(before, 3, Manifest{KeepWarnings: true, ApplyError: fmt.Errorf("no")}, "c matches nothing"),
			`Applied=False AppliedManifestFailed "Failed to apply manifest: no" @3`,
			`Applied=False AppliedManifestWorkFailed "Failed to apply manifest work; warnings: c matches nothing" @3`},
	} {
		t.Run(name, func(t *testing.T) {
			wantLines(t, []string{c.manifest}, c.status.ResourceStatus.Manifests[0].Conditions[:1])
			wantLines(t, []string{c.work}, c.status.Conditions[:1])
		})
	}
}

func TestManyWarnings(t *testing.T) {
	var texts []string
	for i := range 12 {
		texts = append(texts, fmt.Sprintf("w%d %s", i, strings.Repeat("x", 600)))
	}
	got := withWarnings("m", texts)
	if !strings.HasSuffix(got, "; and 2 more") || strings.Contains(got, "w10") || len(got) > 11*(maxWarning+2) {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
