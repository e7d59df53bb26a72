package executor

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Account is a ServiceAccount of the cluster. It does not have to exist: RBAC decides by its name.
type Account struct{ Namespace, Name string }

// String returns the account's user name, system:serviceaccount:NAMESPACE:NAME.
func (a Account) String() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Groups returns the groups that the API server puts the account into.
func (a Account) Groups() []string {
	return []string{"system:serviceaccounts", "system:authenticated", "system:serviceaccounts:" + a.Namespace}
}

// AccountOf returns the account of the executor in a work's spec, nil for a work without one, for
// which nothing is checked. The text of the error goes into the condition of every manifest.
func AccountOf(executor *workv1.ManifestWorkExecutor) (*Account, error) {
	switch {
	case executor == nil:
		return nil, nil
	case executor.Subject.Type != workv1.ExecutorSubjectTypeServiceAccount:
		return nil, errors.New("only support ServiceAccount type for the executor")
	case executor.Subject.ServiceAccount == nil:
		return nil, errors.New("the executor service account is nil")
	}
	account := &Account{Namespace: executor.Subject.ServiceAccount.Namespace, Name: executor.Subject.ServiceAccount.Name}
	// A ":" would make the user name another's.
	if len(validation.ValidateNamespaceName(account.Namespace, false))+len(validation.ValidateServiceAccountName(account.Name, false)) > 0 {
		return nil, fmt.Errorf("the executor has namespace %q and name %q, which no ServiceAccount can have", account.Namespace, account.Name)
	}
	return account, nil
}

// DeniedError is the error of an account that may not do what applying a manifest needs.
type DeniedError struct {
	// Account that was denied.
	Account Account
	// Ref is the object of the manifest.
	Ref object.Ref
	// Verb that was denied first; create for an escalation.
	Verb string
	// Escalation means that the verbs are allowed, but the manifest grants rights that the account
	// does not have.
	Escalation bool
	// Reason is the API server's, for logs. It may be empty.
	Reason string
}

// Error returns the text for the condition.
func (e *DeniedError) Error() string {
	text := fmt.Sprintf("not allowed to apply the resource %s %s, %s %s", e.Ref.Group, e.Ref.Resource, e.Ref.Namespace, e.Ref.Name)
	if e.Escalation {
		text += ", error: permission escalation"
	}
	return fmt.Sprintf("%s, will try again in %v", text, deniedFor)
}

// RetryAfter returns after how long to check again if Changed is not called before.
func (e *DeniedError) RetryAfter() time.Duration { return deniedFor }

// The lifetimes of cached decisions. Check has to be called again after them.
const (
	allowedFor = 5 * time.Minute
	deniedFor  = time.Minute
	// authorizerLag is how long after a change of RBAC the API server's authorizer may still decide
	// from the former objects. Such a decision is cached no longer.
	authorizerLag = 2 * time.Second
)
