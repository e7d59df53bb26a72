package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// Only an API server that cannot list metadata, or whose metadata does not fit what was read twice, is asked
// for whole objects: of a million works, they are gigabytes.
func TestListsWhole(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		readSince bool
		want      bool
	}{
		"not acceptable":        {err: apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{}, "", "", 0, false), want: true},
		"media type":            {err: apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "get", schema.GroupResource{}, "", "", 0, false), want: true},
		"incomplete":            {err: errIncomplete, want: true},
		"contradiction":         {err: fmt.Errorf("%w: older", errWrongHistory)},
		"the same after a read": {err: fmt.Errorf("%w: older", errWrongHistory), readSince: true, want: true},
		"a timeout after one":   {err: context.DeadlineExceeded, readSince: true},
		"timeout":               {err: context.DeadlineExceeded},
		"closed":                {err: io.ErrUnexpectedEOF},
		"busy":                  {err: apierrors.NewTooManyRequestsError("wait")},
		"forbidden":             {err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))},
	} {
		if test.err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := listsWhole(fmt.Errorf("list: %w", test.err), test.readSince); got != test.want {
			t.Errorf("%s: after %v, whole objects are listed: %v, want %v", name, test.err, got, test.want)
		}
	}
}

// A read that takes long is given longer each time, until it ends.
func TestNextPatience(t *testing.T) {
	patience := watchPatience
	for _, want := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute} {
		if patience = nextPatience(patience); patience != want {
			t.Errorf("%v, want %v", patience, want)
		}
	}
	for range 10 {
		patience = nextPatience(patience)
	}
	if patience != maxReadPatience {
		t.Errorf("%v, want %v", patience, maxReadPatience)
	}
}

// While the API server refuses lists, each is asked for again after growing pauses: a hub has a dozen caches.
func TestCatchUpPausesLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		var requests atomic.Int32
		version := clusterv1.SchemeGroupVersion.WithResource("managedclusters")
		api := kubeapi.New(kubeapi.Kind{GroupVersionResource: version, Kind: "ManagedCluster", Cluster: true, Status: true})
		way := api.Via(kubeapi.Faults{Request: func(string, string) (time.Duration, kubeapi.Outcome) {
			requests.Add(1)
			if refuse.Load() {
				return 0, kubeapi.Overloaded
			}
			return 0, kubeapi.Answered
		}})
		config := &rest.Config{Host: "http://api", Transport: way, QPS: -1}
		config.ContentType = runtime.ContentTypeJSON // the model has no protobuf
		i := NewInformers(InformersConfig{Client: versioned.NewForConfigOrDie(config), Logger: slog.New(slog.DiscardHandler)})
		clusters := i.ManagedClusters()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { _ = i.Run(ctx) })
		if !clusters.WaitForSync(ctx) {
			t.Fatal("not synced")
		}
		refuse.Store(true)
		requests.Store(0)
		caughtUp := make(chan bool, 1)
		running.Go(func() { caughtUp <- clusters.CatchUp(ctx) })
		time.Sleep(time.Minute)
		if n := requests.Load(); n < 5 || n > 30 {
			t.Errorf("%d requests in a minute, want 5 to 30", n)
		}
		refuse.Store(false)
		time.Sleep(maxListPause)
		synctest.Wait()
		if len(caughtUp) == 0 || !<-caughtUp {
			t.Error("the cache is not current once the API server answers")
		}
	})
}

// A list of several pages has the objects of all, and its resource version; what lacks something is no list.
func TestListing(t *testing.T) {
	page := func(resourceVersion, next string, names ...string) *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: resourceVersion, Continue: next}}
		for _, name := range names {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: "u", ResourceVersion: "7"}})
		}
		return list
	}
	unversioned := page("9", "", "a")
	unversioned.Items[0].ResourceVersion = ""
	for name, test := range map[string]struct {
		page runtime.Object
		next string
		keys int // 0: an error
	}{
		"a page":                     {page("9", "x", "b", "c"), "x", 3},
		"the last":                   {page("9", "", "b"), "", 2},
		"the same object again":      {page("9", "", "a"), "", 1},
		"without a resource version": {page: page("", "", "b")},
		"without a name":             {page: page("9", "", "")},
		"an object without one":      {page: unversioned},
		"no list":                    {page: &metav1.Status{}},
	} {
		l := &listing{objects: map[types.NamespacedName]version{}}
		_, err := l.add(page("9", "y", "a"))
		kit.NoError(t, err)
		next, err := l.add(test.page)
		switch {
		case test.keys == 0:
			if err == nil {
				t.Errorf("%s is taken for a list: %+v", name, l)
			}
		case err != nil || next != test.next || l.resourceVersion != "9" || len(l.objects) != test.keys ||
			l.objects[types.NamespacedName{Namespace: "n", Name: "a"}] != version{uid: "u", resourceVersion: "7"}:
			t.Errorf("%s: %+v, continued at %q, %v", name, l, next, err)
		}
	}
}
