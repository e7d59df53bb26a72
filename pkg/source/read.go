package source

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

var (
	worksResource = schema.GroupResource{Group: workv1.GroupName, Resource: "manifestworks"}
	workKind      = schema.GroupKind{Group: workv1.GroupName, Kind: "ManifestWork"}
)

// manifestWorks implements the client interface for a namespace, or for all if it is empty.
type manifestWorks struct {
	client    *Client
	namespace string
}

var _ workclient.ManifestWorkInterface = (*manifestWorks)(nil)

// Get returns a copy of the work.
func (m *manifestWorks) Get(ctx context.Context, name string, opts metav1.GetOptions) (*workv1.ManifestWork, error) {
	uid, err := m.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := m.client.parseResourceVersion(opts.ResourceVersion); err != nil {
		return nil, err
	}
	r, ok := m.client.memory.get(uid)
	if !ok {
		return nil, apierrors.NewNotFound(worksResource, name)
	}
	return r.work.DeepCopy(), nil
}

// List returns copies of the works that match, sorted by namespace and name, at most Limit of them:
// Continue of the answer begins the next page. All pages show the works as they were at the first one;
// when 4096 changes have been made since, the next page is Expired, and the list must begin again.
func (m *manifestWorks) List(ctx context.Context, opts metav1.ListOptions) (*workv1.ManifestWorkList, error) {
	if err := m.client.waitReady(ctx); err != nil {
		return nil, err
	}
	match, err := newMatcher(opts)
	if err != nil {
		return nil, err
	}
	if err := checkPage(opts); err != nil {
		return nil, err
	}
	from, err := parseContinue(opts.Continue)
	if err != nil {
		return nil, err
	}
	if from.Name != "" && m.namespace != "" && from.Namespace != m.namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("continue is of a list of namespace %q, not of %q", from.Namespace, m.namespace))
	}
	requested, err := m.client.parseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	works, version, _ := m.client.memory.snapshot(m.namespace)
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && requested != version {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is not available: only the newest one, %d, can be listed", requested, version))
	}
	if from.Name != "" && from.Version != version {
		var known bool
		if works, known = m.client.memory.at(m.namespace, from.Version); !known {
			return nil, apierrors.NewResourceExpired("the continue parameter is too old: begin the list again")
		}
		version = from.Version
	}
	works = slices.DeleteFunc(works, func(work *workv1.ManifestWork) bool { return !match(work) })
	works, next, left := page(works, from, version, opts.Limit)
	list := &workv1.ManifestWorkList{Items: make([]workv1.ManifestWork, 0, len(works))}
	list.ResourceVersion, list.Continue = strconv.FormatInt(version, 10), next
	if next != "" && opts.LabelSelector == "" && opts.FieldSelector == "" {
		list.RemainingItemCount = &left
	}
	for _, work := range works {
		list.Items = append(list.Items, *work.DeepCopy())
	}
	return list, nil
}

// resolve checks the name of a work, waits until the store can be used, and returns the work's UID.
func (m *manifestWorks) resolve(ctx context.Context, name string) (types.UID, error) {
	switch {
	case name == "":
		return "", apierrors.NewBadRequest("the name of a ManifestWork is required")
	case m.namespace == "":
		return "", apierrors.NewBadRequest("a namespace, the cluster's name, is required to name a ManifestWork")
	}
	return m.client.uid(m.namespace, name), m.client.waitReady(ctx)
}

// uid returns the UID of the work with this name.
func (c *Client) uid(namespace, name string) types.UID {
	return wire.UIDFor(c.config.SourceID, namespace, name)
}

// parseResourceVersion parses the minimum resourceVersion of a read, 0 for none. It fails if the
// version does not exist yet.
func (c *Client) parseResourceVersion(resourceVersion string) (int64, error) {
	if resourceVersion == "" {
		return 0, nil
	}
	requested, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil || requested < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion %q must be a number", resourceVersion))
	}
	c.memory.mu.RLock()
	version := c.memory.content.version
	c.memory.mu.RUnlock()
	if requested > version {
		err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", requested, version), 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{
			Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
		}}
		return 0, err
	}
	return requested, nil
}

// newMatcher returns a function that reports whether a work matches the selectors of opts.
func newMatcher(opts metav1.ListOptions) (func(*workv1.ManifestWork) bool, error) {
	byLabel, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("label selector %q: %v", opts.LabelSelector, err))
	}
	byField, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("field selector %q: %v", opts.FieldSelector, err))
	}
	for _, r := range byField.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	return func(work *workv1.ManifestWork) bool {
		return byLabel.Matches(labels.Set(work.Labels)) &&
			(byField.Empty() || byField.Matches(fields.Set{"metadata.name": work.Name, "metadata.namespace": work.Namespace}))
	}, nil
}
