package executor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
)

// query asks whether an account may apply an object: all verbs that this needs, or verb only if it
// is set, or, if content is set, to create that content of an RBAC kind.
type query struct {
	ref     object.Ref
	verb    string
	owned   bool // delete is one of the verbs
	content [sha256.Size]byte
}

// verbs returns the verbs of the query in the order in which they are checked.
func (q query) verbs() []string {
	if q.verb != "" {
		return []string{q.verb}
	}
	needed := []string{verbCreate, "update", verbPatch, verbGet, "delete"}
	if !q.owned {
		return needed[:4]
	}
	return needed
}

const (
	verbGet    = "get"
	verbCreate = "create"
	verbPatch  = "patch"
)

// decision is the answer to a query.
type decision struct {
	denied string // the first verb that is not allowed; empty: all are allowed
	reason string // of the denial, for logs
}

func (d decision) allowed() bool { return d.denied == "" }

// lifetime is how long a decision is valid if nothing changes.
func (d decision) lifetime() time.Duration {
	if d.allowed() {
		return allowedFor
	}
	return deniedFor
}

type cachedDecision struct {
	decision
	role  dependency // on which the decision depends; zero for none
	until time.Time
	// From renew on, the decision is requested again by those who need it anyway. Otherwise
	// decisions for one work would expire one after the other forever.
	renew time.Time
}

// Check decides whether account may do what applying m needs: create, update, patch, get and, if
// the work owns the object, delete; and for an RBAC kind, whether it has the rights that m grants.
// M must have no Err.
//
// A nil error means that everything is allowed, a [*DeniedError] that something is not. Any other
// error means that there is no decision, or that the API server refuses m for another reason.
// Recheck is the time after which to check again if Changed is not called before; 0 means never.
//
// While nothing changes, decisions come from the cache.
func (e *Executor[K]) Check(ctx context.Context, account Account, m *strategy.Manifest) (recheck time.Duration, err error) {
	now, q := time.Now(), query{ref: m.Ref, owned: m.Owned}
	if recheck, err = e.may(ctx, account, q, now); err != nil || !Escalates(m.Ref) {
		return recheck, err
	}
	desired := m.Desired.DeepCopy()
	desired.SetResourceVersion("")
	body, err := json.Marshal(desired.Object) // sorts keys
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", m.Ref, err)
	}
	q.content = sha256.Sum256(body) // Manifest.Hash is short enough to construct a harmless manifest with the hash of another
	d, again, err := e.cached(account, q, now, boundRole(m), func() (decision, error) { return e.tryCreate(ctx, account, m.Ref, desired) })
	if err != nil || !d.allowed() {
		return again, denial(account, q, d, err)
	}
	if recheck == 0 || again < recheck {
		recheck = again
	}
	return recheck, nil
}

// MayRead decides whether account may get an object. The results are those of [Executor.Check],
// except that recheck is 0 also while the watches report changes of what was allowed.
func (e *Executor[K]) MayRead(ctx context.Context, account Account, ref object.Ref) (recheck time.Duration, err error) {
	recheck, err = e.may(ctx, account, query{ref: ref, verb: verbGet}, time.Now())
	if err == nil && recheck > authorizerLag && e.watched().complete() {
		return 0, nil
	}
	return recheck, err
}

// MayPatch decides whether account may patch an object. The results are those of [Executor.Check].
func (e *Executor[K]) MayPatch(ctx context.Context, account Account, ref object.Ref) (recheck time.Duration, err error) {
	return e.may(ctx, account, query{ref: ref, verb: verbPatch}, time.Now())
}

// may decides on the verbs of q. The results are those of [Executor.Check].
func (e *Executor[K]) may(ctx context.Context, account Account, q query, now time.Time) (recheck time.Duration, err error) {
	d, recheck, err := e.decide(ctx, account, q, now)
	if err != nil || !d.allowed() {
		return recheck, denial(account, q, d, err)
	}
	return recheck, nil
}

// denial returns err or, if it is nil, the error for the denial d.
func denial(account Account, q query, d decision, err error) error {
	if err != nil {
		return err
	}
	return &DeniedError{Account: account, Ref: q.ref, Verb: d.denied, Escalation: q.content != [sha256.Size]byte{}, Reason: d.reason}
}

// decide decides on the verbs of q, and returns the time after which to check again.
func (e *Executor[K]) decide(ctx context.Context, account Account, q query, now time.Time) (decision, time.Duration, error) {
	if e.config.InMemory {
		if d, known := e.watched().evaluate(identity(account), q); known && d.allowed() {
			return d, 0, nil
		} else if known {
			return d, d.lifetime(), nil
		}
	}
	return e.cached(account, q, now, dependency{}, func() (decision, error) { return e.review(ctx, account, q) })
}

// Escalates reports whether an object grants rights: it is one of RBAC's own kinds.
func Escalates(ref object.Ref) bool {
	if ref.Group != rbacv1.GroupName {
		return false
	}
	switch ref.Resource {
	case "roles", "rolebindings", "clusterroles", "clusterrolebindings":
		return true
	}
	return false
}

// boundRole returns the role to which m refers if it is a binding. What it allows decides whether
// it may be bound.
func boundRole(m *strategy.Manifest) dependency {
	var decoded rbacv1.RoleBinding
	fields := map[string]any{"roleRef": m.Desired.Object["roleRef"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &decoded); err != nil {
		return dependency{} // the API server refuses it too
	}
	name, ok := referredRole(decoded.RoleRef, m.Ref.Namespace)
	if !ok {
		return dependency{}
	}
	return dependency{kind: role, name: name}
}

// watched returns the watch of RBAC, nil if there is none.
func (e *Executor[K]) watched() *rbacWatch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.watch
}

// cached returns the cached decision on q, or requests and caches it, and returns the time after
// which to check again. The decision depends on role.
func (e *Executor[K]) cached(
	account Account, q query, now time.Time, role dependency, request func() (decision, error),
) (decision, time.Duration, error) {
	e.mu.Lock()
	var known cachedDecision
	if state := e.accounts[account]; state != nil {
		known = state.decisions[q]
	}
	e.mu.Unlock()
	if now.Before(known.renew) {
		return known.decision, known.until.Sub(now), nil
	}
	d, err := request()
	if err != nil {
		return d, 0, err
	}
	return d, e.store(account, q, cachedDecision{decision: d, role: role}, now), nil
}

// store caches a decision that was requested at a time, if somebody follows the account, and
// returns the time after which to check again.
func (e *Executor[K]) store(account Account, q query, d cachedDecision, requested time.Time) time.Duration {
	lifetime := d.lifetime()
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.accounts[account]
	if state == nil {
		return lifetime
	}
	if d.role != (dependency{}) {
		e.depend(account, state, d.role)
	}
	// A change during the request is later than requested, and counts too.
	if requested.Sub(e.lastChange(state)) < authorizerLag {
		lifetime = authorizerLag
	}
	d.until, d.renew = requested.Add(lifetime), requested.Add(lifetime-lifetime/10)
	state.decisions[q] = d
	return lifetime
}

// lastChange returns the time of the last change of RBAC that affected an account. The caller holds
// mu.
func (e *Executor[K]) lastChange(state *accountState[K]) time.Time {
	last := e.syncedAt
	for d := range state.dependencies {
		if when := e.changedAt[d]; when.After(last) {
			last = when
		}
	}
	return last
}
