package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/revisions"
)

const (
	askLimit  = 3 * time.Second // a page does not wait longer for what it only adds
	maxEvents = 20
)

// asked is what the API server answers to the viewer, or why it does not.
type asked[T any] struct {
	Rows    []T
	Problem string // "" if it answers
}

// ask lists what the hub does not hold, as the viewer: with the viewer's token and nothing of the
// hub's own. A page that only refreshes itself asks nothing, because its end stays as it is.
func ask[T any](v *visit, resource, namespace string, list func(context.Context, *rest.Config) ([]T, error)) asked[T] {
	if refreshes(v.r) {
		return asked[T]{}
	}
	config := rest.AnonymousClientConfig(v.d.cfg.REST)
	config.QPS, config.RateLimiter, config.BearerToken = -1, nil, v.d.tokenOf(v.r, false)
	ctx, cancel := context.WithTimeout(v.r.Context(), askLimit)
	defer cancel()
	rows, err := list(ctx, config)
	if apierrors.IsForbidden(err) {
		return asked[T]{Problem: fmt.Sprintf("You may not list %s in the namespace %s; who administers the hub's API can give you the right.", resource, namespace)}
	}
	if err != nil {
		v.d.cfg.Logger.Warn("list for a page of the dashboard failed", "resource", resource, "namespace", namespace, "error", err)
		return asked[T]{Problem: fmt.Sprintf("The API server does not list the %s; load the page again. The hub's log has the error.", resource)}
	}
	return asked[T]{Rows: rows}
}

// refreshes reports whether a page asks for itself again because something has changed.
func refreshes(r *http.Request) bool { return r.Header.Get("Dashboard-Refresh") != "" }

// eventView is an event of the hub's API.
type eventView struct {
	Last                  time.Time
	Warning               bool
	Count                 int32
	Reason, Message, From string
}

// events returns the last events about an object, the newest first. It costs one request.
func (v *visit) events(object metav1.Object) asked[eventView] {
	return ask(v, "events", object.GetNamespace(), func(ctx context.Context, config *rest.Config) ([]eventView, error) {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		about := fields.Set{"involvedObject.uid": string(object.GetUID())}.AsSelector().String()
		list, err := client.CoreV1().Events(object.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: about})
		if err != nil {
			return nil, err
		}
		return newEventViews(list.Items), nil
	})
}

func newEventViews(events []corev1.Event) []eventView {
	views := make([]eventView, 0, len(events))
	for i := range events {
		e := &events[i]
		last := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
		views = append(views, eventView{
			Last: last, Warning: e.Type == corev1.EventTypeWarning, Count: max(e.Count, 1), Reason: e.Reason, Message: e.Message,
			From: cmp.Or(e.Source.Component, e.ReportingController),
		})
	}
	slices.SortStableFunc(views, func(a, b eventView) int { return b.Last.Compare(a.Last) })
	return views[:min(len(views), maxEvents)]
}

// revisionView is a template that a set has or had.
type revisionView struct {
	Number  int64
	Created time.Time
	Cause   string
	Current bool
}

// revisions returns the templates of a set that the hub has stored, the newest first, without what is in
// them. It costs one request.
func (v *visit) revisions(set *workv1alpha1.ManifestWorkReplicaSet) asked[revisionView] {
	return ask(v, "manifestworkreplicasetrevisions", set.Namespace, func(ctx context.Context, config *rest.Config) ([]revisionView, error) {
		client, err := versioned.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		stored, err := revisions.List(ctx, client, set)
		if err != nil {
			return nil, err
		}
		views := make([]revisionView, 0, len(stored))
		for i, r := range slices.Backward(stored) {
			views = append(views, revisionView{
				Number: r.Revision, Created: r.CreationTimestamp.Time, Cause: r.Annotations[workwirev1alpha1.ChangeCauseAnnotationKey], Current: i == len(stored)-1,
			})
		}
		return views, nil
	})
}
