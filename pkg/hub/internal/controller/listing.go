package controller

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// version identifies a state of an object.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(o metav1.Object) version {
	return version{uid: o.GetUID(), resourceVersion: o.GetResourceVersion()}
}

// listing is what a consistent list returned: every object at a resource version.
type listing struct {
	resourceVersion string
	objects         map[types.NamespacedName]version
}

// errWrongHistory says that cache and listing cannot be of one history of one API: the API was
// restored from a backup, or answers wrongly.
var errWrongHistory = errors.New("the cache does not fit the list of the API server")

// behind reports whether the cache, which holds cached for key, lacks a change that was made before
// l was read. cached is nil if the cache holds nothing. The error wraps errWrongHistory.
func (l *listing) behind(key types.NamespacedName, cached *version) (bool, error) {
	listed, ok := l.objects[key]
	if cached == nil {
		return ok, nil
	}
	later, err := compareVersions(cached.resourceVersion, l.resourceVersion)
	if err != nil {
		return false, err
	}
	if later > 0 {
		return false, nil // changed after the list
	}
	if !ok {
		return true, nil // deleted before the list
	}
	switch order, err := compareVersions(cached.resourceVersion, listed.resourceVersion); {
	case err != nil:
		return false, err
	case order < 0:
		return true, nil
	case order > 0 || cached.uid != listed.uid:
		return false, fmt.Errorf("%w: %s is held at resource version %s with uid %s, and listed at %s with uid %s", errWrongHistory, key,
			cached.resourceVersion, cached.uid, listed.resourceVersion, listed.uid)
	}
	return false, nil
}

// follows returns an error that wraps errWrongHistory if l is older than a resource version that
// was read before l was requested; "" is older than any.
func (l *listing) follows(read string) error {
	if read == "" {
		return nil
	}
	order, err := compareVersions(read, l.resourceVersion)
	if err == nil && order > 0 {
		err = fmt.Errorf("%w: it was listed at resource version %s, and the cache was at %s before", errWrongHistory, l.resourceVersion, read)
	}
	return err
}

// compareVersions orders resource versions; the error wraps errWrongHistory.
func compareVersions(a, b string) (int, error) {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errWrongHistory, err)
	}
	return order, nil
}
