package plan_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
)

// causes returns an error of the API server with a cause of that type for each message.
func causes(reason metav1.StatusReason, code int32, cause metav1.CauseType, messages ...string) error {
	details := &metav1.StatusDetails{}
	for _, message := range messages {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: cause, Message: message})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason, Code: code, Details: details}}
}

func TestRecover(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	exists, notFound := apierrors.NewAlreadyExists(resource, "c"), apierrors.NewNotFound(resource, "c")
	conflict := apierrors.NewConflict(resource, "c", errors.New("the object has been modified"))
	notServed := causes(metav1.StatusReasonNotFound, 404, metav1.CauseTypeUnexpectedServerResponse, "404 page not found")
	invalid := func(messages ...string) error {
		return causes(metav1.StatusReasonInvalid, 422, metav1.CauseTypeFieldValueInvalid, messages...)
	}
	with := func(managers ...string) error {
		var messages []string
		for _, manager := range managers {
			messages = append(messages, `conflict with "`+manager+`" using v1`)
		}
		return causes(metav1.StatusReasonConflict, 409, metav1.CauseTypeFieldManagerConflict, messages...)
	}
	m := strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), strategytest.Configured(strategytest.ServerSide(nil)))
	live := applied(t, m, `"data":{"k":"v"}`)
	updated := managed(live.DeepCopy(), strategytest.Updated("work-agent", "", `{"f:data":{"f:k":{}}}`))
	shared := live.DeepCopy()
	shared.SetOwnerReferences([]metav1.OwnerReference{owner, ownership.Reference("other", "other-uid")})
	versioned := func(version string) *unstructured.Unstructured {
		body := live.DeepCopy()
		body.SetResourceVersion(version)
		return body
	}
	unowned := live.DeepCopy()
	unowned.SetOwnerReferences(nil)
	for name, test := range map[string]struct {
		verb     plan.Verb
		as       string // the field manager of the manifest
		digest   string // what is known in place of the previous manifest
		body     *unstructured.Unstructured
		err      error
		reread   bool // after the failure
		complete bool
		live     *unstructured.Unstructured // nil: it does not exist
		force    bool
		want     plan.Recovery
		forces   bool // the next apply takes fields over
		refused  bool // the refusal is remembered
	}{
		"create, it exists":                   {verb: plan.Create, err: exists, want: plan.Reread},
		"create, it exists, read":             {verb: plan.Create, err: exists, reread: true, live: live, want: plan.Replan},
		"create, refused":                     {verb: plan.Create, err: invalid("no"), want: plan.Fail},
		"create, not served":                  {verb: plan.Create, err: notServed, want: plan.Fail},
		"update, changed meanwhile":           {verb: plan.Update, err: conflict, live: live, want: plan.Reread},
		"update, changed meanwhile, read":     {verb: plan.Update, err: conflict, reread: true, live: live, want: plan.Replan},
		"update, gone":                        {verb: plan.Update, err: notFound, live: live, want: plan.Reread},
		"update, not served":                  {verb: plan.Update, err: notServed, live: live, want: plan.Fail},
		"update, refused":                     {verb: plan.Update, err: invalid("no"), live: live, want: plan.Reread},
		"update, refused, read":               {verb: plan.Update, err: invalid("no"), reread: true, complete: true, live: live, want: plan.Replan, refused: true},
		"update, immutable, as applied":       {verb: plan.Update, err: invalid("field is immutable"), reread: true, complete: true, live: live, want: plan.Accept},
		"update, immutable and more":          {verb: plan.Update, err: invalid("field is immutable", "no"), reread: true, complete: true, live: live, want: plan.Replan, refused: true},
		"update, unavailable":                 {verb: plan.Update, err: errors.New("connection refused"), live: live, want: plan.Fail},
		"metadata, changed meanwhile":         {verb: plan.PatchMetadata, err: conflict, live: live, want: plan.Reread},
		"migration, gone":                     {verb: plan.MigrateManagedFields, err: notFound, reread: true, want: plan.Replan},
		"apply, conflict with others":         {verb: plan.Apply, err: with("kubectl"), live: live, want: plan.Fail},
		"apply, conflict with others too":     {verb: plan.Apply, err: with("work-agent", "kubectl"), live: live, want: plan.Fail},
		"apply, own conflict":                 {verb: plan.Apply, err: with("work-agent"), live: live, want: plan.Reread},
		"apply, own conflict, to migrate":     {verb: plan.Apply, err: with("work-agent"), reread: true, complete: true, live: updated, want: plan.Replan},
		"apply, own conflict, by an apply":    {verb: plan.Apply, err: with("work-agent"), reread: true, complete: true, live: live, want: plan.Replan, forces: true},
		"apply, own conflict, shared":         {verb: plan.Apply, err: with("work-agent"), reread: true, complete: true, live: shared, want: plan.Fail},
		"apply, own conflict, gone":           {verb: plan.Apply, err: with("work-agent"), reread: true, complete: true, want: plan.Replan},
		"apply, forced, own conflict":         {verb: plan.Apply, err: with("work-agent"), force: true, live: live, want: plan.Fail},
		"apply to a version, changed":         {verb: plan.Apply, body: versioned("6"), err: conflict, live: live, want: plan.Reread},
		"apply to a version, changed, read":   {verb: plan.Apply, body: versioned("6"), err: conflict, reread: true, complete: true, live: live, want: plan.Replan},
		"apply to a version, gone, read":      {verb: plan.Apply, body: versioned("6"), err: conflict, reread: true, complete: true, want: plan.Replan},
		"update, immutable, by its digest":    {verb: plan.Update, err: invalid("field is immutable"), reread: true, complete: true, live: live, digest: digest(m), want: plan.Accept},
		"update, immutable, another digest":   {verb: plan.Update, err: invalid("field is immutable"), reread: true, complete: true, live: live, digest: "A01234567", want: plan.Replan, refused: true},
		"apply, conflict with another work's": {verb: plan.Apply, as: "custom", err: with("work-agent"), reread: true, complete: true, live: unowned, want: plan.Fail},
		"apply to a version, which it is at":  {verb: plan.Apply, body: versioned("7"), err: conflict, reread: true, complete: true, live: live, want: plan.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			s := plan.State{Owner: owner, AgentHash: agentHash, Complete: test.complete, Force: test.force, Previous: m}
			if s.Live.State = object.Absent; test.live != nil {
				s.Live = object.Live{State: object.Present, Object: test.live}
				if test.digest != "" || test.as != "" {
					s.Previous, s.FieldsDigest = nil, test.digest
				}
			}
			body := test.body
			if body == nil {
				body = m.Desired
			}
			m := *m
			m.FieldManager = test.as
			next, got := plan.Recover(&m, s, plan.Failure{Step: plan.Step{Verb: test.verb, Object: body}, Err: test.err, Reread: test.reread})
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			if next.Force != (test.forces || test.force) || (next.Refused != nil) != test.refused {
				t.Errorf("force %t, refused %v", next.Force, next.Refused)
			}
		})
	}
}
