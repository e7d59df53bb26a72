package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
)

// impersonator makes requests as an account.
type impersonator struct {
	rest.Interface
	user string
}

func (i impersonator) as(request *rest.Request) *rest.Request {
	// The API server knows the groups of a service account.
	return request.SetHeader("Impersonate-User", i.user)
}

func (i impersonator) Verb(verb string) *rest.Request { return i.as(i.Interface.Verb(verb)) }
func (i impersonator) Post() *rest.Request            { return i.as(i.Interface.Post()) }
func (i impersonator) Put() *rest.Request             { return i.as(i.Interface.Put()) }
func (i impersonator) Patch(kind types.PatchType) *rest.Request {
	return i.as(i.Interface.Patch(kind))
}
func (i impersonator) Get() *rest.Request    { return i.as(i.Interface.Get()) }
func (i impersonator) Delete() *rest.Request { return i.as(i.Interface.Delete()) }

// as returns a client whose requests are made as account. The API server refuses them if the agent may not impersonate it.
func (e *Executor[K]) as(account Account) rest.Interface {
	return impersonator{Interface: e.config.Client, user: account.String()}
}

// impersonation is the answer to whether the agent may impersonate an account.
type impersonation struct {
	allowed bool
	until   time.Time // zero: never asked
}

// openShiftGroup is a group in which OpenShift serves RBAC's kinds once more, and checks them as
// whoever makes the request.
const openShiftGroup = "authorization.openshift.io"

// Client returns the client for reads and writes as account: one that impersonates it if the agent
// may, as a SelfSubjectAccessReview tells, otherwise the agent's own. The answer is cached.
func (e *Executor[K]) Client(ctx context.Context, account Account) (rest.Interface, error) {
	allowed, err := e.mayImpersonate(ctx, account)
	switch {
	case err != nil:
		return nil, err
	case allowed:
		return e.as(account), nil
	default:
		return e.config.Client, nil
	}
}

// Clients returns the clients for applying m once [Executor.Check] has allowed that. What may grant rights is written as account in
// any case: what the object becomes, the API server alone knows and checks. It refuses an agent that may not impersonate account.
func (e *Executor[K]) Clients(ctx context.Context, account Account, m *strategy.Manifest) (apply.Clients, error) {
	if Escalates(m.Ref) || m.Ref.Group == openShiftGroup {
		return apply.Clients{Client: e.as(account)}, nil
	}
	allowed, err := e.mayImpersonate(ctx, account)
	if err != nil || !allowed {
		return apply.Clients{}, err
	}
	return apply.Clients{Client: e.as(account), Creator: func(ctx context.Context) (rest.Interface, error) {
		return e.creator(ctx, account, m.Ref)
	}}, nil
}

// creator returns the client that creates ref. The authorizer does not know the name of an object
// that is being created. An account that may create only objects of certain names, which
// [Executor.Check] has asked for, could not create them; the agent does.
func (e *Executor[K]) creator(ctx context.Context, account Account, ref object.Ref) (rest.Interface, error) {
	ref.Name = ""
	d, _, err := e.decide(ctx, account, query{ref: ref, verb: verbCreate}, time.Now())
	switch {
	case err != nil:
		return nil, err
	case d.allowed():
		return e.as(account), nil
	default:
		return e.config.Client, nil
	}
}

// mayImpersonate reports whether the agent may impersonate account.
func (e *Executor[K]) mayImpersonate(ctx context.Context, account Account) (bool, error) {
	now := time.Now()
	e.mu.Lock()
	var known impersonation
	if state := e.accounts[account]; state != nil {
		known = state.impersonation
	}
	e.mu.Unlock()
	if now.Before(known.until) {
		return known.allowed, nil
	}
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "impersonate", Version: "v1", Resource: "serviceaccounts", Namespace: account.Namespace, Name: account.Name,
		}},
	}
	// An agent that may not even ask goes on without impersonation.
	if err := e.post(ctx, "selfsubjectaccessreviews", &review); err != nil && !apierrors.IsForbidden(err) {
		return false, fmt.Errorf("ask whether the agent may impersonate the executor %s, by a SelfSubjectAccessReview: %w", account, err)
	}
	next := impersonation{allowed: review.Status.Allowed && !review.Status.Denied, until: now.Add(deniedFor)}
	if next.allowed {
		next.until = now.Add(allowedFor)
	}
	e.mu.Lock()
	if state := e.accounts[account]; state != nil {
		state.impersonation = next
	}
	e.mu.Unlock()
	if changed := known.until.IsZero() || known.allowed != next.allowed; changed && !next.allowed {
		e.config.Logger.WarnContext(ctx, "objects are written with the agent's rights and under its name: the agent may not impersonate the executor; "+
			"give it the verb impersonate on serviceaccounts", "executor", account.String())
	} else if changed {
		e.config.Logger.DebugContext(ctx, "objects are written as the executor", "executor", account.String())
	}
	return next.allowed, nil
}

// Refused returns the error to report for one of a request that Client or Clients made as account:
// a [*DeniedError] if the object would grant rights that the account does not have. If the agent may
// not impersonate account (any more), that is asked again before the next request.
func (e *Executor[K]) Refused(account Account, ref object.Ref, err error) error {
	var known *DeniedError
	switch {
	case err == nil || errors.As(err, &known):
	case cannotImpersonate(err):
		e.mu.Lock()
		if state := e.accounts[account]; state != nil {
			state.impersonation.until = time.Now()
		}
		e.mu.Unlock()
		return fmt.Errorf("%w; give the agent the verb impersonate on serviceaccounts", err)
	case Escalates(ref) && apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "is attempting to grant RBAC permissions not currently held") ||
		strings.Contains(err.Error(), "to use the aggregationRule")):
		return &DeniedError{Account: account, Ref: ref, Verb: "update", Escalation: true, Reason: err.Error()}
	}
	return err
}

// cannotImpersonate reports whether err is about a right of the agent, not of the account.
func cannotImpersonate(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot impersonate`)
}
