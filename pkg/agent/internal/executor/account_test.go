package executor_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestAccountOf(t *testing.T) {
	t.Parallel()
	account := &workv1.ManifestWorkSubjectServiceAccount{Namespace: "default", Name: "executor1"}
	for _, c := range []struct {
		executor *workv1.ManifestWorkExecutor
		want     *executor.Account
		err      string
	}{
		{nil, nil, ""},
		{&workv1.ManifestWorkExecutor{}, nil, "only support ServiceAccount type for the executor"},
		{
			&workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: "User", ServiceAccount: account}},
			nil, "only support ServiceAccount type for the executor",
		},
		{
			&workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: "ServiceAccount"}},
			nil, "the executor service account is nil",
		},
		{
			&workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: "ServiceAccount", ServiceAccount: account}},
			&executor.Account{Namespace: "default", Name: "executor1"}, "",
		},
		{subject("default", ""), nil, `the executor has namespace "default" and name "", which no ServiceAccount can have`},
		{subject("", "executor1"), nil, `the executor has namespace "" and name "executor1", which no ServiceAccount can have`},
		{subject("default:executor1", "x"), nil, `the executor has namespace "default:executor1" and name "x", which no ServiceAccount can have`},
	} {
		got, err := executor.AccountOf(c.executor)
		if text := errorText(err); text != c.err {
			t.Errorf("%+v: error %q, want %q", c.executor, text, c.err)
		}
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%+v: account %v, want %v", c.executor, got, c.want)
		}
	}
}

func subject(namespace, name string) *workv1.ManifestWorkExecutor {
	return &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: "ServiceAccount", ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: namespace, Name: name},
	}}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAccountIsKnownAs(t *testing.T) {
	t.Parallel()
	account := executor.Account{Namespace: "default", Name: "executor1"}
	if got := account.String(); got != "system:serviceaccount:default:executor1" {
		t.Errorf("user %s", got)
	}
	want := []string{"system:serviceaccounts", "system:authenticated", "system:serviceaccounts:default"}
	if got := account.Groups(); !slices.Equal(got, want) {
		t.Errorf("groups %v, want %v", got, want)
	}
}

func TestDeniedTexts(t *testing.T) {
	t.Parallel()
	ref := func(group, resource, namespace, name string) object.Ref {
		return object.Ref{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Namespace: namespace, Name: name}
	}
	for _, c := range []struct {
		err  executor.DeniedError
		want string
	}{
		{
			executor.DeniedError{Ref: ref("apps", "deployments", "default", "web"), Verb: "create", Reason: "for logs"},
			"not allowed to apply the resource apps deployments, default web, will try again in 1m0s",
		},
		{
			executor.DeniedError{Ref: ref("", "configmaps", "default", "test")},
			"not allowed to apply the resource  configmaps, default test, will try again in 1m0s",
		},
		{
			executor.DeniedError{Ref: ref("rbac.authorization.k8s.io", "clusterroles", "", "admins"), Escalation: true},
			"not allowed to apply the resource rbac.authorization.k8s.io clusterroles,  admins, error: permission escalation, will try again in 1m0s",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
