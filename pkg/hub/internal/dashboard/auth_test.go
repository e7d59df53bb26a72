package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reviewer answers reviews: token T is of user T unless it is "junk", and user may list in its
// namespaces.
type reviewer struct {
	may      map[string][]string
	asked    []string
	failWith error
}

type tokenReviewer struct{ *reviewer }

func (r tokenReviewer) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.asked = append(r.asked, "token "+review.Spec.Token)
	if r.failWith != nil {
		return nil, r.failWith
	}
	if review.Spec.Token != "junk" {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: review.Spec.Token, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}}
	}
	return review, nil
}

type accessReviewer struct {
	*reviewer
	lock chan struct{}
}

func (r accessReviewer) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	r.lock <- struct{}{}
	defer func() { <-r.lock }()
	a := review.Spec.ResourceAttributes
	r.asked = append(r.asked, fmt.Sprintf("%s %s %s in %q", review.Spec.User, a.Verb, a.Resource, a.Namespace))
	if len(review.Spec.Groups) != 1 || len(review.Spec.Extra) != 1 || a.Group != "work.open-cluster-management.io" {
		return nil, errors.New("the question lacks something")
	}
	review.Status.Allowed = slices.Contains(r.may[review.Spec.User], a.Namespace)
	return review, r.failWith
}

func (r *reviewer) take() []string {
	asked := r.asked
	r.asked = nil
	slices.Sort(asked)
	return asked
}

func TestAuthenticator(t *testing.T) {
	r := &reviewer{may: map[string][]string{"ann": {"", "a", "b"}, "bob": {"b"}}}
	now := epoch
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthenticator(tokenReviewer{r}, accessReviewer{r, make(chan struct{}, 1)}, func() time.Time { return now }, m)
	viewerOf := func(token string) viewer {
		v, err := a.viewer(t.Context(), token)
		if err != nil {
			t.Fatalf("%s: %v", token, err)
		}
		return v
	}
	scopeOf := func(token string) string {
		s, err := a.scope(t.Context(), viewerOf(token), worksResource, []string{"a", "b"})
		if err != nil {
			t.Fatalf("%s: %v", token, err)
		}
		return fmt.Sprint(s.sees("a"), s.sees("b"), s.sees("c"))
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := r.take(); !slices.Equal(got, want) {
			t.Errorf("%s asked %q, want %q", what, got, want)
		}
	}
	for range 2 {
		if got := scopeOf("ann"); got != "true true true" {
			t.Error(got)
		}
	}
	expect("who may list everywhere", `ann list manifestworks in ""`, "token ann")
	for range 2 {
		if got := scopeOf("bob"); got != "false true false" {
			t.Error(got)
		}
	}
	expect("who may list somewhere", `bob list manifestworks in ""`, `bob list manifestworks in "a"`, `bob list manifestworks in "b"`, "token bob")
	now = now.Add(tokenAge + 1)
	scopeOf("ann")
	expect("after 10 s", "token ann")
	now = now.Add(accessAge)
	r.may["bob"] = nil
	if got := scopeOf("bob"); got != "false false false" {
		t.Error(got)
	}
	r.take()
	for range 2 {
		if _, err := a.viewer(t.Context(), "junk"); !errors.Is(err, errUnauthenticated) {
			t.Errorf("junk: %v", err)
		}
	}
	expect("junk", "token junk")
	if _, err := a.viewer(t.Context(), ""); !errors.Is(err, errUnauthenticated) {
		t.Errorf("no token: %v", err)
	}
	expect("no token")

	r.failWith = errors.New("down")
	now = now.Add(time.Hour)
	for range 2 {
		if _, err := a.viewer(t.Context(), "ann"); err == nil || errors.Is(err, errUnauthenticated) {
			t.Errorf("an API server that is down: %v", err)
		}
	}
	expect("an API server that is down is asked each time", "token ann", "token ann")
}

// TestBounds: what is remembered is bounded.
func TestBounds(t *testing.T) {
	r := &reviewer{}
	m, _ := newMetrics(nil)
	now := epoch
	a := newAuthenticator(tokenReviewer{r}, accessReviewer{r, make(chan struct{}, 1)}, func() time.Time { return now }, m)
	s := newSessions(func() time.Time { return now })
	first := s.create("first")
	for n := range 2 * maxTokens {
		now = now.Add(time.Millisecond)
		if _, err := a.viewer(t.Context(), fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
		a.user(fmt.Sprint(n))
		s.create("token")
	}
	if known, users, held := len(a.known.Keys()), len(a.users.Keys()), len(s.held.Keys()); known > maxTokens || users > maxUsers || held > maxSessions {
		t.Errorf("%d tokens, %d users, %d sessions", known, users, held)
	}
	if s.token(first, false) != "" {
		t.Error("the oldest session is held")
	}
}

func TestSessions(t *testing.T) {
	now := epoch
	s := newSessions(func() time.Time { return now })
	id := s.create("secret")
	if s.token("other", true) != "" || s.token(id, true) != "secret" {
		t.Error("tokens")
	}
	for range 8 { // a page that somebody uses
		now = now.Add(sessionIdle - time.Second)
		if s.token(id, true) != "secret" {
			t.Error("it has ended")
		}
	}
	now = now.Add(9 * time.Second) // 8 hours, and a second
	if s.token(id, true) != "" {
		t.Error("it has not ended after its life")
	}
	id = s.create("secret")
	now = now.Add(sessionIdle / 2)
	s.token(id, false) // a page that fetches itself
	now = now.Add(sessionIdle/2 + 1)
	if s.token(id, true) != "" || len(s.held.Keys()) != 0 {
		t.Error("it has not ended after an hour")
	}
	for range 1000 { // while requests are under way
		id = s.create("secret")
		var group sync.WaitGroup
		group.Go(func() { s.end(id) })
		for range 20 {
			s.token(id, true)
		}
		group.Wait()
		if s.token(id, true) != "" {
			t.Fatal("it was ended")
		}
	}
}
