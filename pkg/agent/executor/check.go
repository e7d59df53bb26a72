package executor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
)

// question is something to be allowed or not: all verbs that applying an object
// needs, or, if content is set, to create that very content of an RBAC kind.
type question struct {
	ref     object.Ref
	owned   bool // delete is among the verbs
	content [sha256.Size]byte
}

// verbs are those of the question, in the order in which they are asked about.
func (q question) verbs() []string {
	needed := []string{"create", "update", "patch", "get", "delete"}
	if !q.owned {
		return needed[:4]
	}
	return needed
}

// verdict on a question.
type verdict struct {
	denied string // the first verb that is not allowed; empty: all are
	reason string // of the denial, for logs
}

func (v verdict) allowed() bool { return v.denied == "" }

// trust is how long a verdict is believed if nothing changes.
func (v verdict) trust() time.Duration {
	if v.allowed() {
		return allowedFor
	}
	return deniedFor
}

// answer is a verdict that is kept.
type answer struct {
	verdict
	binds matter // a role on which it depends; zero for none
	until time.Time
	// From renew on, who needs the answer anyway asks again: otherwise what was
	// asked one after the other for one work would always be.
	renew time.Time
}

// Check asks whether account may do what applying m needs: create, update, patch,
// get, and, if the object belongs to the work, delete; and, for an RBAC kind,
// whether it holds the rights that m gives away. M must have been read without an
// error.
//
// A nil error means that all is allowed; a *DeniedError, that something is not;
// any other error, that the answer is not known, or that the API server finds
// something else wrong with m. Recheck is when to ask again if Changed does not
// come before; 0 means never.
//
// While nothing changes, answers come from memory.
func (e *Executor[K]) Check(ctx context.Context, account Account, m *strategy.Manifest) (recheck time.Duration, err error) {
	now := time.Now()
	q := question{ref: m.Ref, owned: m.Owned}
	v, recheck, err := e.mayWrite(ctx, account, q, now)
	if err != nil || !v.allowed() {
		return recheck, refusal(account, q, v, err)
	}
	if !escalates(m.Ref) {
		return recheck, nil
	}
	body, err := creation(m)
	if err != nil {
		return 0, err
	}
	q.content = sha256.Sum256(body)
	v, again, err := e.mayCreate(ctx, account, q, m, body, now)
	if err != nil || !v.allowed() {
		return again, refusal(account, q, v, err)
	}
	if recheck == 0 || again < recheck {
		recheck = again
	}
	return recheck, nil
}

// refusal gives err, or else the error for v, which is a denial.
func refusal(account Account, q question, v verdict, err error) error {
	if err != nil {
		return err
	}
	return &DeniedError{Account: account, Ref: q.ref, Verb: v.denied, Escalation: q.content != [sha256.Size]byte{}, Reason: v.reason}
}

// mayWrite asks about the verbs of q, and gives when to ask again.
func (e *Executor[K]) mayWrite(ctx context.Context, account Account, q question, now time.Time) (verdict, time.Duration, error) {
	if v, known := e.evaluate(account, q); known {
		if v.allowed() {
			return v, 0, nil
		}
		return v, v.trust(), nil
	}
	if kept, ok := e.recall(account, q, now); ok {
		return kept.verdict, kept.until.Sub(now), nil
	}
	v, err := e.review(ctx, account, q)
	if err != nil {
		return v, 0, err
	}
	return v, e.keep(account, q, answer{verdict: v}, now), nil
}

// mayCreate asks about the content of q, and gives when to ask again.
func (e *Executor[K]) mayCreate(ctx context.Context, account Account, q question, m *strategy.Manifest, body []byte, now time.Time) (verdict, time.Duration, error) {
	if kept, ok := e.recall(account, q, now); ok {
		return kept.verdict, kept.until.Sub(now), nil
	}
	v, err := e.tryCreate(ctx, account, m.Ref, body)
	if err != nil {
		return v, 0, err
	}
	return v, e.keep(account, q, answer{verdict: v, binds: roleOf(m)}, now), nil
}

// escalates reports whether an object gives rights away.
func escalates(ref object.Ref) bool {
	if ref.Group != rbacv1.GroupName {
		return false
	}
	switch ref.Resource {
	case "roles", "rolebindings", "clusterroles", "clusterrolebindings":
		return true
	}
	return false
}

// creation gives the body of a request that creates m. Its hash is what an answer
// is kept by: Manifest.Hash is too short to keep someone from making two
// manifests, one of them harmless, that have the same.
func creation(m *strategy.Manifest) ([]byte, error) {
	desired := m.Desired.DeepCopy()
	unstructured.RemoveNestedField(desired.Object, "metadata", "resourceVersion")
	body, err := json.Marshal(desired.Object) // sorts keys
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.Ref, err)
	}
	return body, nil
}

// roleOf gives the role that m, if it is a binding, refers to. Whether it may be
// bound depends on what it allows.
func roleOf(m *strategy.Manifest) matter {
	var decoded rbacv1.RoleBinding
	fields := map[string]any{"roleRef": m.Desired.Object["roleRef"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &decoded); err != nil {
		return matter{} // nor did the API server take it
	}
	named, ok := roleNamed(decoded.RoleRef, m.Ref.Namespace)
	if !ok {
		return matter{}
	}
	return matter{kind: role, name: named}
}

// evaluate answers q by RBAC evaluated here, if that is wanted and possible now.
func (e *Executor[K]) evaluate(account Account, q question) (v verdict, known bool) {
	if !e.config.InMemory {
		return v, false
	}
	e.mu.Lock()
	watch := e.watch
	e.mu.Unlock()
	if watch == nil {
		return v, false
	}
	return watch.evaluate(identity(account), q)
}

// recall gives the answer to q that was kept.
func (e *Executor[K]) recall(account Account, q question, now time.Time) (answer, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followed[account]
	if f == nil {
		return answer{}, false
	}
	a, ok := f.answers[q]
	return a, ok && now.Before(a.renew)
}

// keep keeps an answer that was asked for at a time, if the account is followed,
// and gives when to ask again.
func (e *Executor[K]) keep(account Account, q question, a answer, asked time.Time) time.Duration {
	trust := a.trust()
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followed[account]
	if f == nil {
		return trust
	}
	if a.binds != (matter{}) {
		e.listen(account, f, a.binds)
	}
	// What changed while it was asked is later than asked, and counts too.
	if asked.Sub(e.lastChange(f)) < lag {
		trust = lag
	}
	a.until, a.renew = asked.Add(trust), asked.Add(trust-trust/10)
	f.answers[q] = a
	return trust
}

// lastChange is when RBAC last changed in what concerns f. The caller holds mu.
func (e *Executor[K]) lastChange(f *followed[K]) time.Time {
	last := e.renewed
	for m := range f.matters {
		if when := e.touched[m]; when.After(last) {
			last = when
		}
	}
	return last
}
