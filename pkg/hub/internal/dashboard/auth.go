package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// How long answers of the API server are remembered, and how many.
const (
	tokenAge     = 10 * time.Second
	accessAge    = 30 * time.Second
	maxTokens    = 1000
	maxUsers     = 500
	maxDecisions = 200_000 // of each user
	maxReviews   = 16      // reviews under way
	reviewLimit  = 10 * time.Second
	maxTokenSize = 16 << 10
)

// errUnauthenticated says that the API server does not know the token.
var errUnauthenticated = errors.New("the API server does not accept this token")

// viewer is who looks at a page.
type viewer struct {
	Name string
	user authenticationv1.UserInfo
	key  string // of the user, in the cache of decisions
}

// authenticator answers who presents a token and what they may see, by asking the API server. It is
// safe for concurrent use.
type authenticator struct {
	tokens  authenticationclient.TokenReviewInterface
	access  authorizationclient.SubjectAccessReviewInterface
	now     func() time.Time
	metrics *metrics

	reviews chan struct{}         // has an element for each review under way
	known   *cache.LRUExpireCache // of tokenAnswer, by digest of the token

	mu    sync.Mutex            // held to look for a user and add one: all requests of a user share one
	users *cache.LRUExpireCache // of *userAccess, by key of the user
}

// clock is [cache.Clock].
type clock func() time.Time

func (c clock) Now() time.Time { return c() }

type tokenAnswer struct {
	viewer viewer
	err    error
}

// userAccess is what one user may list.
type userAccess struct {
	asking  sync.Mutex            // held while reviews are made: others of this user wait
	allowed *cache.LRUExpireCache // bool, by resource
}

// resource is what a viewer lists: manifestworks or manifestworkreplicasets in a namespace, "" for
// all.
type resource struct{ name, namespace string }

const (
	worksResource = "manifestworks"
	setsResource  = "manifestworkreplicasets"
)

func newAuthenticator(tokens authenticationclient.TokenReviewInterface, access authorizationclient.SubjectAccessReviewInterface,
	now func() time.Time, m *metrics) *authenticator {
	return &authenticator{
		tokens: tokens, access: access, now: now, metrics: m, reviews: make(chan struct{}, maxReviews),
		known: cache.NewLRUExpireCacheWithClock(maxTokens, clock(now)), users: cache.NewLRUExpireCacheWithClock(maxUsers, clock(now)),
	}
}

// viewer returns who presents token. The error is errUnauthenticated if nobody does, and another one
// if the API server does not answer.
func (a *authenticator) viewer(ctx context.Context, token string) (viewer, error) {
	if token == "" || len(token) > maxTokenSize {
		return viewer{}, errUnauthenticated
	}
	digest := sha256.Sum256([]byte(token))
	if answer, ok := a.known.Get(digest); ok {
		return answer.(tokenAnswer).viewer, answer.(tokenAnswer).err
	}
	v, err := a.reviewToken(ctx, token)
	if err != nil && !errors.Is(err, errUnauthenticated) {
		return viewer{}, err
	}
	a.known.Add(digest, tokenAnswer{viewer: v, err: err}, tokenAge)
	return v, err
}

// forget drops what is remembered of a token.
func (a *authenticator) forget(token string) { a.known.Remove(sha256.Sum256([]byte(token))) }

func (a *authenticator) reviewToken(ctx context.Context, token string) (viewer, error) {
	var review *authenticationv1.TokenReview
	err := a.limited(ctx, "token", func(ctx context.Context) (err error) {
		review, err = a.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return viewer{}, fmt.Errorf("ask the API server about the token: %w", err)
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		return viewer{}, errUnauthenticated
	}
	user := review.Status.User
	return viewer{Name: user.Username, user: user, key: userKey(user)}, nil
}

// userKey returns a text that tells users apart to whom the API server may answer differently.
func userKey(user authenticationv1.UserInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q", user.Username, user.UID)
	for _, group := range slices.Sorted(slices.Values(user.Groups)) {
		fmt.Fprintf(&b, " %q", group)
	}
	for _, key := range slices.Sorted(maps.Keys(user.Extra)) {
		fmt.Fprintf(&b, " %q=%q", key, []string(user.Extra[key]))
	}
	return b.String()
}

// limited calls review once fewer than maxReviews are under way.
func (a *authenticator) limited(ctx context.Context, kind string, review func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reviewLimit)
	defer cancel()
	select {
	case a.reviews <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.reviews }()
	err := review(ctx)
	a.metrics.review(kind, err)
	return err
}

// scope is the namespaces in which a viewer may list a resource.
type scope struct {
	all   bool
	names map[string]bool
}

// sees reports whether the viewer may list the resource in namespace.
func (s scope) sees(namespace string) bool { return s.all || s.names[namespace] }

// scope returns in which of the namespaces a viewer may list a resource. It costs one review if the
// viewer may list it everywhere, else one more for each namespace, every 30 s.
func (a *authenticator) scope(ctx context.Context, v viewer, name string, namespaces []string) (scope, error) {
	user := a.user(v.key)
	user.asking.Lock()
	defer user.asking.Unlock()
	everywhere, err := a.mayList(ctx, v, user, resource{name: name})
	if err != nil || everywhere {
		return scope{all: everywhere}, err
	}
	var group errgroup.Group
	group.SetLimit(maxReviews)
	allowed := make([]bool, len(namespaces))
	for i, namespace := range namespaces {
		group.Go(func() (err error) {
			allowed[i], err = a.mayList(ctx, v, user, resource{name: name, namespace: namespace})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return scope{}, err
	}
	s := scope{names: make(map[string]bool)}
	for i, namespace := range namespaces {
		s.names[namespace] = allowed[i]
	}
	return s, nil
}

// user returns what is remembered of a user.
func (a *authenticator) user(key string) *userAccess {
	a.mu.Lock()
	defer a.mu.Unlock()
	user, ok := a.users.Get(key)
	if !ok {
		user = &userAccess{allowed: cache.NewLRUExpireCacheWithClock(maxDecisions, clock(a.now))}
	}
	a.users.Add(key, user, sessionLife) // again: nobody who looks is forgotten
	return user.(*userAccess)
}

// mayList reports whether a viewer may list a resource in a namespace, as was decided at most 30 s
// ago.
func (a *authenticator) mayList(ctx context.Context, v viewer, user *userAccess, r resource) (bool, error) {
	if allowed, ok := user.allowed.Get(r); ok {
		return allowed.(bool), nil
	}
	allowed, err := a.reviewAccess(ctx, v, r)
	if err == nil {
		user.allowed.Add(r, allowed, accessAge)
	}
	return allowed, err
}

func (a *authenticator) reviewAccess(ctx context.Context, v viewer, r resource) (bool, error) {
	version := workv1.SchemeGroupVersion
	if r.name == setsResource {
		version = workv1alpha1.SchemeGroupVersion
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: v.user.Username, UID: v.user.UID, Groups: v.user.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Group: version.Group, Version: version.Version, Resource: r.name, Namespace: r.namespace,
		},
	}
	if len(v.user.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(v.user.Extra))
		for key, value := range v.user.Extra {
			spec.Extra[key] = authorizationv1.ExtraValue(value)
		}
	}
	var review *authorizationv1.SubjectAccessReview
	err := a.limited(ctx, "access", func(ctx context.Context) (err error) {
		review, err = a.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("ask the API server what %s may see: %w", v.Name, err)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
