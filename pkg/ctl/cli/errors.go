package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Exit codes of workctl.
const (
	// ExitFailed means that the command could not do its work.
	ExitFailed = 1
	// ExitUsage means that a flag or an argument is invalid.
	ExitUsage = 2
	// ExitTimeout means that what the command waited for has not happened in time.
	ExitTimeout = 3
	// ExitNo means that the command did its work and the answer is no, such as doctor that
	// found a fault.
	ExitNo = 4
)

// Error is an error with an exit code and what to do about it.
type Error struct {
	// Code is the exit code.
	Code int
	// Err is the error.
	Err error
	// Hint is what to do, a sentence without a full stop; empty for nothing.
	Hint string
}

// Errorf returns an error with the code ExitFailed.
func Errorf(format string, args ...any) *Error {
	return &Error{Code: ExitFailed, Err: fmt.Errorf(format, args...)}
}

// Usagef returns an error with the code ExitUsage.
func Usagef(format string, args ...any) *Error {
	return &Error{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// Do returns the error with a hint.
func (e *Error) Do(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// WithCode returns the error with another exit code.
func (e *Error) WithCode(code int) *Error {
	e.Code = code
	return e
}

// Error returns the text with the hint on a line of its own.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "\nWhat to do: " + e.Hint
}

// Unwrap returns the error without hint and code.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns the exit code.
func (e *Error) ExitCode() int { return e.Code }

// APIError returns an error of a request to the hub's API with what to do. operation is what was tried, such
// as "list the works of cluster1". It returns nil for nil.
func APIError(operation string, err error) error {
	if err == nil {
		return nil
	}
	e := Errorf("%s: %w", operation, err)
	switch network := net.Error(nil); {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return e
	case apierrors.IsForbidden(err):
		return e.Do("ask an administrator of the hub for this right; docs/workctl.md lists what each command needs")
	case apierrors.IsUnauthorized(err):
		return e.Do("log in again, or choose another user with --context")
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && strings.Contains(err.Error(), "the server could not find the requested resource"):
		return e.Do("this API server has no Workwire: choose the hub with --kubeconfig and --context, or install it, see docs/install.md")
	case errors.As(err, &network):
		return e.Do("the hub's API does not answer: check --kubeconfig and --context")
	}
	return e
}
