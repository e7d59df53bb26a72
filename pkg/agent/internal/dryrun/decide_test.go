package dryrun

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	"github.com/workwire/workwire/pkg/agent/policy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

var event0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func refusal(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) error {
	return fmt.Errorf("apply: %w", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{Causes: causes},
	}})
}

func TestFailed(t *testing.T) {
	known := made{namespaces: []string{"shop"}, kinds: []schema.GroupKind{{Group: "g", Kind: "Made"}}}
	manifest := strategy.Manifest{Meta: workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}}
	recreated := manifest
	recreated.RecreateOnImmutable = true
	invalid := manifest
	invalid.Err = errors.New("kind must be set in manifest")
	account := executor.Account{Namespace: "ns", Name: "sa"}
	immutable := refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `Deployment "a" is invalid: spec.selector: Invalid value: "x": field is immutable`,
		metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Message: "Invalid value: \"x\": field is immutable", Field: "spec.selector"})
	for name, test := range map[string]struct {
		m    strategy.Manifest
		err  error
		want wire.DryRunResult
		says string
	}{
		"a kind that the work defines":    {manifest, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "g", Kind: "Made"}}, wire.DryRunUnknown, "defined by this work"},
		"no such kind":                    {strategy.Manifest{Err: &meta.NoKindMatchError{}}, &meta.NoKindMatchError{}, wire.DryRunInvalid, "no matches for kind"},
		"a manifest without kind":         {invalid, invalid.Err, wire.DryRunInvalid, "kind must be set"},
		"the executor may not":            {manifest, &executor.DeniedError{Account: account, Ref: object.Ref{Name: "a"}, Verb: "create", Reason: "no role"}, wire.DryRunDenied, "sa may not create  a: no role"},
		"the executor grants too much":    {manifest, &executor.DeniedError{Account: account, Escalation: true}, wire.DryRunDenied, "does not have the rights"},
		"the agent may not":               {manifest, refusal(403, metav1.StatusReasonForbidden, `configmaps is forbidden: User "x" cannot create resource`), wire.DryRunDenied, "cannot create"},
		"the owner's policy":              {manifest, fmt.Errorf("apply: %w", &policy.RefusedError{Rule: "r", What: "resource x is not allowed"}), wire.DryRunDenied, "not allowed"},
		"a webhook that says little":      {manifest, refusal(403, metav1.StatusReasonForbidden, `admission webhook "w": it cannot be`), wire.DryRunRefused, "admission webhook"},
		"denied, without a name":          {manifest, refusal(403, metav1.StatusReasonForbidden, `something denied the request: it cannot be`), wire.DryRunRefused, "denied the request"},
		"quota":                           {manifest, refusal(403, metav1.StatusReasonForbidden, `configmaps "a" is forbidden: exceeded quota: q`), wire.DryRunRefused, "exceeded quota"},
		"a webhook":                       {manifest, refusal(403, metav1.StatusReasonForbidden, `admission webhook "w" denied the request: it cannot be`), wire.DryRunRefused, "admission webhook"},
		"a policy":                        {manifest, refusal(422, metav1.StatusReasonInvalid, `configmaps "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), wire.DryRunRefused, "denied request"},
		"a value that is not valid":       {manifest, refusal(422, metav1.StatusReasonInvalid, `ConfigMap "a" is invalid: data: Invalid value`, metav1.StatusCause{Message: "Invalid value: \"x\": too long", Field: "data"}), wire.DryRunInvalid, "Invalid value"},
		"a field that is immutable":       {manifest, immutable, wire.DryRunInvalid, "immutable"},
		"the same, and to be recreated":   {recreated, immutable, wire.DryRunRecreated, "immutable"},
		"a namespace that the work makes": {manifest, refusal(404, metav1.StatusReasonNotFound, `namespaces "shop" not found`), wire.DryRunUnknown, "made by this work"},
		"the time is over":                {manifest, errors.New("the dry run was ended after 1m0s"), wire.DryRunUnknown, "ended after"},
	} {
		got := failed(identified(&test.m), &test.m, test.err, known)
		if got.Result != test.want || !strings.Contains(got.Message, test.says) {
			t.Errorf("%s: %s %q, want %s with %q", name, got.Result, got.Message, test.want, test.says)
		}
	}
	got := failed(identified(&manifest), &manifest, refusal(409, metav1.StatusReasonConflict, "Apply failed with 2 conflicts",
		metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Message: "another", Field: ".data.m"},
		metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "kubectl" using v1`, Field: ".data.k"},
		metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "helm" using v1`, Field: ".data.l"}), known)
	if got.Result != wire.DryRunConflict || strings.Join(got.Managers, "; ") != "helm .data.l; kubectl .data.k" {
		t.Errorf("a conflict: %+v", got)
	}
	secret := manifest
	secret.Meta.Kind = "Secret"
	other := secret
	other.Meta.Group = "g"
	for _, m := range []strategy.Manifest{manifest, other, secret} {
		got := failed(identified(&m), &m, refusal(403, metav1.StatusReasonForbidden, `admission webhook "w" denied the request: hunter2`), known)
		if strings.Contains(got.Message, "hunter2") != (m.Meta != secret.Meta) {
			t.Errorf("of %s of group %q: %s", m.Meta.Kind, m.Meta.Group, got.Message)
		}
	}
	if got := failed(identified(&secret), &secret, refusal(422, metav1.StatusReasonInvalid, `Secret "a" is invalid: data[k]: Invalid value: "hunter2"`), known); strings.Contains(got.Message, "hunter2") {
		t.Errorf("the error shows a value of a Secret: %s", got.Message)
	}
}

// TestMadeBy: what the other manifests of a work make may be missing.
func TestMadeBy(t *testing.T) {
	object := func(text string) *unstructured.Unstructured { return strategytest.Decode(t, text) }
	got := madeBy([]strategy.Manifest{
		{Err: errors.New("no object")},
		{Desired: object(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`)},
		{Desired: object(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{"group":"g","names":{"kind":"K"}}}`)},
		{Desired: object(`{"apiVersion":"g/v1","kind":"Namespace","metadata":{"name":"other"}}`)},
	})
	if !slices.Equal(got.namespaces, []string{"n"}) || !slices.Equal(got.kinds, []schema.GroupKind{{Group: "g", Kind: "K"}}) {
		t.Errorf("got %+v", got)
	}
}

func TestDecide(t *testing.T) {
	m := &strategy.Manifest{}
	object := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{"k": value}}}
	}
	for name, test := range map[string]struct {
		before  *unstructured.Unstructured
		outcome apply.Outcome
		want    wire.DryRunResult
	}{
		"read only":                       {object("1"), apply.Outcome{Action: apply.Observed}, wire.DryRunReadOnly},
		"new":                             {nil, apply.Outcome{Action: apply.Created, Live: object("1")}, wire.DryRunCreated},
		"not written":                     {object("1"), apply.Outcome{Action: apply.Unchanged}, wire.DryRunUnchanged},
		"as it is":                        {object("1"), apply.Outcome{Action: apply.Unchanged, Live: object("1")}, wire.DryRunUnchanged},
		"written, with nothing to change": {object("1"), apply.Outcome{Action: apply.Updated, Live: object("1")}, wire.DryRunUnchanged},
		"changed":                         {object("1"), apply.Outcome{Action: apply.Updated, Live: object("2")}, wire.DryRunChanged},
	} {
		test.outcome.Warnings = []string{"deprecated"}
		for _, migrated := range []bool{true, false} {
			got := decide(m, test.before, &test.outcome, made{}, migrated)
			if got.Result != test.want || len(got.Warnings) != 1 || strings.Contains(got.Message, "server-side apply") != migrated {
				t.Errorf("%s: %+v, want %s", name, got, test.want)
			}
		}
	}
	for orphan, why := range map[bool]string{true: "its deleteOption lets it stay", false: "another work has it"} {
		if got, _ := decideRemoval(wire.DryRunObject{}, plan.DropOwner, orphan); got.Result != wire.DryRunKept || !strings.Contains(got.Message, why) {
			t.Errorf("%+v, want %q", got, why)
		}
	}
	for step, want := range map[plan.RemovalStep]wire.DryRunResult{
		plan.Delete: wire.DryRunRemoved, plan.Await: wire.DryRunRemoved, plan.DropOwner: wire.DryRunKept, plan.Forget: "",
	} {
		if got, ok := decideRemoval(wire.DryRunObject{}, step, false); got.Result != want || ok != (want != "") {
			t.Errorf("%s: %+v, %v", step, got, ok)
		}
	}
}
