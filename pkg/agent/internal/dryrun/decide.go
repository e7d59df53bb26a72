package dryrun

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/policy"
	"github.com/workwire/workwire/pkg/runtime/redaction"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// maxMessage bounds a message in bytes.
const maxMessage = 1024

// made is what the manifests of a spec would make, so that other manifests can depend on it.
type made struct {
	namespaces []string
	kinds      []schema.GroupKind // of definitions
}

// madeBy returns what manifests would make. Only what does not exist yet is missed.
func madeBy(manifests []strategy.Manifest) (m made) {
	for i := range manifests {
		obj := manifests[i].Desired
		if obj == nil {
			continue
		}
		switch obj.GroupVersionKind().GroupKind() {
		case schema.GroupKind{Kind: "Namespace"}:
			m.namespaces = append(m.namespaces, obj.GetName())
		case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
			group, _, _ := unstructured.NestedString(obj.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(obj.Object, "spec", "names", "kind")
			m.kinds = append(m.kinds, schema.GroupKind{Group: group, Kind: kind})
		}
	}
	return m
}

// identified returns an object of the answer that names the object of a manifest.
func identified(m *strategy.Manifest) wire.DryRunObject {
	return wire.DryRunObject{
		APIVersion: schema.GroupVersion{Group: m.Meta.Group, Version: m.Meta.Version}.String(), Kind: m.Meta.Kind,
		Namespace: m.Meta.Namespace, Name: m.Meta.Name,
	}
}

// decide says what the outcome of a dry run means. before is the object as it was, nil if there was
// none; migrated is set if the object would become one of server-side apply.
func decide(m *strategy.Manifest, before *unstructured.Unstructured, outcome *apply.Outcome, known made, migrated bool) wire.DryRunObject {
	o := identified(m)
	o.Warnings = outcome.Warnings
	switch {
	case outcome.Err != nil:
		return failed(o, m, outcome.Err, known)
	case outcome.Action == apply.Observed:
		o.Result = wire.DryRunReadOnly
	case before == nil:
		o.Result = wire.DryRunCreated
	case outcome.Live == nil:
		o.Result = wire.DryRunUnchanged
	default:
		o.Fields, o.OmittedFields = compare(before, outcome.Live)
		if o.Result = wire.DryRunUnchanged; len(o.Fields) > 0 {
			o.Result = wire.DryRunChanged
		}
	}
	if migrated {
		o.Message = "the object would change to server-side apply; whether other managers own its fields shows when it is applied"
	}
	return o
}

// failed says what the error of a manifest means.
func failed(o wire.DryRunObject, m *strategy.Manifest, err error, known made) wire.DryRunObject {
	var unknownKind *meta.NoKindMatchError
	var denial *executor.DeniedError
	managers := conflicts(err)
	o.Message = condition.Shorten(redaction.WithoutValues(err, m.Meta.Kind == "Secret" && m.Meta.Group == "").Error(), maxMessage)
	switch {
	case errors.As(err, &unknownKind) && slices.Contains(known.kinds, unknownKind.GroupKind):
		o.Result, o.Message = wire.DryRunUnknown, "its kind is defined by this work and does not exist yet"
	case errors.As(err, &denial):
		o.Result, o.Message = wire.DryRunDenied, deniedMessage(denial)
	case policy.Refused(err):
		o.Result = wire.DryRunDenied
	case m.Err != nil && !errors.As(err, new(apierrors.APIStatus)):
		o.Result = wire.DryRunInvalid
	case len(managers) > 0:
		o.Result, o.Managers = wire.DryRunConflict, managers
	case apierrors.IsNotFound(err) && slices.Contains(known.namespaces, m.Meta.Namespace):
		o.Result, o.Message = wire.DryRunUnknown, "its namespace is made by this work and does not exist yet"
	case m.RecreateOnImmutable && plan.IsImmutable(err):
		o.Result = wire.DryRunRecreated
	case isDenied(err):
		o.Result = wire.DryRunDenied
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		o.Result = wire.DryRunInvalid
		if fromAdmission(err) {
			o.Result = wire.DryRunRefused
		}
	case errors.As(err, new(apierrors.APIStatus)):
		o.Result = wire.DryRunRefused
	default:
		o.Result = wire.DryRunUnknown
	}
	return o
}

// deniedMessage tells what the executor of a work may not do.
func deniedMessage(d *executor.DeniedError) string {
	text := fmt.Sprintf("the executor %s may not %s %s", d.Account, d.Verb, d.Ref)
	if d.Escalation {
		text = fmt.Sprintf("the executor %s does not have the rights that %s grants", d.Account, d.Ref)
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return condition.Shorten(text, maxMessage)
}

// isDenied reports whether the API server refuses a request for lack of rights, not of quota or
// admission, which it also says with Forbidden.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) && !fromAdmission(err) && strings.Contains(err.Error(), " cannot ")
}

// fromAdmission reports whether a webhook or a policy refused.
func fromAdmission(err error) bool {
	text := err.Error()
	return strings.Contains(text, "admission webhook") || strings.Contains(text, "denied the request") || strings.Contains(text, "denied request:")
}

// conflictManager finds the manager in a cause of a conflict.
var conflictManager = regexp.MustCompile(`conflict with "([^"]*)"`)

// conflicts returns the managers that a server-side apply conflicts with, each with a field; nil if err
// is no such conflict.
func conflicts(err error) (managers []string) {
	for _, cause := range plan.Causes(err) {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		manager := cause.Message
		if found := conflictManager.FindStringSubmatch(manager); found != nil {
			manager = found[1]
		}
		managers = append(managers, condition.Shorten(manager+" "+cause.Field, maxPath))
	}
	slices.Sort(managers)
	return slices.Compact(managers)
}

// decideRemoval says what becomes of an object that the work would drop; false if nothing would.
func decideRemoval(o wire.DryRunObject, step plan.RemovalStep, orphan bool) (wire.DryRunObject, bool) {
	switch {
	case step == plan.Delete:
		o.Result = wire.DryRunRemoved
	case step == plan.Await:
		o.Result, o.Message = wire.DryRunRemoved, "it is being deleted already"
	case step == plan.DropOwner && orphan:
		o.Result, o.Message = wire.DryRunKept, "the work drops it, and its deleteOption lets it stay"
	case step == plan.DropOwner:
		o.Result, o.Message = wire.DryRunKept, "the work drops it, and another work has it, too"
	default:
		return o, false
	}
	return o, true
}
