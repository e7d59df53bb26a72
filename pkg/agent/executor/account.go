package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Account is a ServiceAccount of the cluster. It need not exist: what counts is
// what RBAC lets it do.
type Account struct{ Namespace, Name string }

const (
	userPrefix         = "system:serviceaccount:"
	groupAll           = "system:serviceaccounts"
	groupAllOf         = "system:serviceaccounts:"
	groupAuthenticated = "system:authenticated"
)

// String gives the account's user name, system:serviceaccount:NAMESPACE:NAME.
func (a Account) String() string { return userPrefix + a.Namespace + ":" + a.Name }

// Groups gives the groups that the API server puts the account into.
func (a Account) Groups() []string {
	return []string{groupAll, groupAuthenticated, groupAllOf + a.Namespace}
}

var (
	errNoServiceAccountType = errors.New("only support ServiceAccount type for the executor")
	errNoAccount            = errors.New("the executor service account is nil")
)

// AccountOf reads the executor of a work's spec. It gives nil for a work that
// has none, for which nothing is to be checked. An error is for the condition of
// every manifest.
func AccountOf(executor *workv1.ManifestWorkExecutor) (*Account, error) {
	switch {
	case executor == nil:
		return nil, nil
	case executor.Subject.Type != workv1.ExecutorSubjectTypeServiceAccount:
		return nil, errNoServiceAccountType
	case executor.Subject.ServiceAccount == nil:
		return nil, errNoAccount
	}
	return &Account{Namespace: executor.Subject.ServiceAccount.Namespace, Name: executor.Subject.ServiceAccount.Name}, nil
}

// DeniedError says that an account may not do what applying a manifest needs.
type DeniedError struct {
	// Account that was denied.
	Account Account
	// Ref is the object of the manifest.
	Ref object.Ref
	// Verb that was denied first; create for an escalation.
	Verb string
	// Escalation means that the verbs are allowed, but the manifest would give
	// rights that the account does not have.
	Escalation bool
	// Reason is what the API server says about it, for logs. It may be empty.
	Reason string
}

// Error gives the text for the condition.
func (e *DeniedError) Error() string {
	text := fmt.Sprintf("not allowed to apply the resource %s %s, %s %s", e.Ref.Group, e.Ref.Resource, e.Ref.Namespace, e.Ref.Name)
	if e.Escalation {
		text += ", error: permission escalation"
	}
	return fmt.Sprintf("%s, will try again in %v", text, deniedFor)
}

// How long an answer is kept, and Check asks to be called again after it.
const (
	allowedFor = 5 * time.Minute
	deniedFor  = time.Minute
	// lag is how long after a change of RBAC the API server's authorizer may still
	// answer from before it; such an answer is kept no longer than that.
	lag = 2 * time.Second
)
