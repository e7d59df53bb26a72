package source

import (
	"context"
	"fmt"
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

// manifestWorks are the works of a namespace, or of all.
type manifestWorks struct {
	client    *Client
	namespace string
}

var _ workclient.ManifestWorkInterface = (*manifestWorks)(nil)

// Get gives a copy of the work.
func (m *manifestWorks) Get(ctx context.Context, name string, opts metav1.GetOptions) (*workv1.ManifestWork, error) {
	uid, err := m.named(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := m.client.atLeast(opts.ResourceVersion); err != nil {
		return nil, err
	}
	r, ok := m.client.store.get(uid)
	if !ok {
		return nil, apierrors.NewNotFound(worksResource, name)
	}
	return r.work.DeepCopy(), nil
}

// List gives copies of the works that match, all at once.
func (m *manifestWorks) List(ctx context.Context, opts metav1.ListOptions) (*workv1.ManifestWorkList, error) {
	if err := m.client.begin(ctx); err != nil {
		return nil, err
	}
	match, err := selects(opts)
	if err != nil {
		return nil, err
	}
	asked, err := m.client.atLeast(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	works, version := m.client.store.snapshot(m.namespace)
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && asked != version {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is gone: only the newest one, %d, can be listed", asked, version))
	}
	list := &workv1.ManifestWorkList{Items: []workv1.ManifestWork{}}
	list.ResourceVersion = strconv.FormatInt(version, 10)
	for _, work := range works {
		if match(work) {
			list.Items = append(list.Items, *work.DeepCopy())
		}
	}
	return list, nil
}

// named begins a call about one work and gives its UID.
func (m *manifestWorks) named(ctx context.Context, name string) (types.UID, error) {
	switch {
	case name == "":
		return "", apierrors.NewBadRequest("the name of a ManifestWork is required")
	case m.namespace == "":
		return "", apierrors.NewBadRequest("a namespace, the cluster's name, is required to name a ManifestWork")
	}
	return m.client.uid(m.namespace, name), m.client.begin(ctx)
}

// uid is that of the work of a name.
func (c *Client) uid(namespace, name string) types.UID {
	return wire.UIDFor(c.config.SourceID, namespace, name)
}

// atLeast reads a resourceVersion that the answer must not be older than; none is
// 0. A version that does not exist yet can not be served.
func (c *Client) atLeast(resourceVersion string) (int64, error) {
	if resourceVersion == "" {
		return 0, nil
	}
	asked, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil || asked < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion %q: want a number", resourceVersion))
	}
	c.store.mu.RLock()
	version := c.store.state.version
	c.store.mu.RUnlock()
	if asked > version {
		err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, version), 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{
			Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
		}}
		return 0, err
	}
	return asked, nil
}

// selects makes one test of the selectors of opts.
func selects(opts metav1.ListOptions) (func(*workv1.ManifestWork) bool, error) {
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
