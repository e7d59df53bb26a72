package agentbench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
	"github.com/workwire/workwire/test/kit/wiretap"
)

const (
	// uplinkManifests is the number of ConfigMaps of the large work, each with a feedback value.
	uplinkManifests = 500
	// uplinkWorks is the number of works of the rollout.
	uplinkWorks = 100
)

// link counts what goes through a tap.
type link struct {
	tap   *wiretap.Tap
	bytes atomic.Int64
}

func newLink(to string) (l *link, err error) {
	l = &link{}
	l.tap, err = wiretap.Start(to, l)
	return l, err
}

// Write counts p.
func (l *link) Write(p []byte) (int, error) {
	l.bytes.Add(int64(len(p)))
	return len(p), nil
}

// uplink counts the bytes between the agent and the broker: of a changed feedback value of a large
// work, of a rollout, and of nothing.
func (w *world) uplink(ctx context.Context, run int) (err error) {
	counted, err := newLink(w.Broker.Addr)
	if err != nil {
		return err
	}
	w.source.AcceptAll()
	if err := w.launchAt(ctx, counted.tap.Addr); err != nil {
		return err
	}
	large := w.fedBackWork("link", uplinkManifests)
	small := w.maker.Works("rollout", uplinkWorks, objects)
	before := w.source.Counts().Data
	if _, err := w.publish(ctx, []*wire.Spec{large}, says(uplinkManifests-1, "0")); err != nil {
		return err
	}
	if err := w.source.AwaitQuiet(ctx, time.Second); err != nil {
		return err
	}
	whole := w.source.Counts().Data - before
	if _, err := w.publish(ctx, small, events.Applied(1)); err != nil {
		return err
	}
	value, err := w.bytesOf(ctx, counted, func() error { return w.changeValue(ctx, large, uplinkManifests/2) })
	if err != nil {
		return err
	}
	edited, err := w.edit(ctx, counted)
	if err != nil {
		return err
	}
	next := events.Changed(small)
	rollout, err := w.bytesOf(ctx, counted, func() error {
		_, err := w.publish(ctx, next, events.Applied(2))
		return err
	})
	if err != nil {
		return err
	}
	nothing, err := w.bytesOf(ctx, counted, func() error { return procs.Pause(ctx, w.Idle) })
	if err != nil {
		return err
	}
	day := float64(nothing) * float64(24*time.Hour) / float64(w.Idle)
	w.Board.Add(uplinkValue, report.Sample{Measured: float64(value), Detail: map[string]any{"manifests": uplinkManifests}})
	w.Board.Add(uplinkShare, report.Sample{Measured: 100 * float64(value) / float64(whole), Detail: map[string]any{"statusBytes": whole}})
	w.Board.Add(uplinkRollout, report.Sample{Measured: float64(rollout) / uplinkWorks, Detail: map[string]any{"works": uplinkWorks, "bytes": rollout}})
	w.Board.Add(uplinkIdle, report.Sample{Measured: day / 1e3, Detail: map[string]any{"bytes": nothing, "seconds": w.Idle.Seconds(), "works": uplinkWorks + 1}})
	w.Progress("run %d: a changed value of %d manifests: %d bytes, of a status of %d; a rollout to %d works: %d bytes; %v of nothing: %d bytes",
		run+1, uplinkManifests, value, whole, uplinkWorks, rollout, w.Idle, nothing)
	if _, err := w.publish(ctx, events.Deleted(append(next, large, edited)), events.Gone); err != nil {
		return err
	}
	if err := w.Stop(); err != nil {
		return err
	}
	return counted.tap.Close()
}

// edit counts the bytes of one changed manifest of a large work, sent as a difference and whole. It
// returns the work.
func (w *world) edit(ctx context.Context, counted *link) (*wire.Spec, error) {
	manifests := make([]string, uplinkManifests)
	for i := range manifests {
		manifests[i] = w.largeConfigMap(i)
	}
	spec := w.maker.Work("edited", &wire.Bundle{}, manifests...)
	var err error
	if spec.ContentHash, err = wire.ContentHash(spec.Bundle); err != nil {
		return nil, err
	}
	if _, err := w.publish(ctx, []*wire.Spec{spec}, events.Applied(1)); err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec.Bundle)
	if err != nil {
		return nil, err
	}
	measure := func(row string, publish func(next *wire.Spec) error) error {
		next, err := w.editedOnce(spec)
		if err != nil {
			return err
		}
		sent, err := w.bytesOf(ctx, counted, func() error { return publish(next) })
		spec = next
		w.Board.Add(row, report.Sample{Measured: 100 * float64(sent) / float64(len(data)), Detail: map[string]any{"bytes": sent, "specBytes": len(data)}})
		w.Progress("%s: %d bytes of %d", row, sent, len(data))
		return err
	}
	if err := measure(uplinkEdit, func(next *wire.Spec) error {
		_, err := w.source.PublishDelta(ctx, next, spec, events.Applied(next.Generation))
		return err
	}); err != nil {
		return nil, err
	}
	return spec, measure(uplinkWhole, func(next *wire.Spec) error {
		_, err := w.publish(ctx, []*wire.Spec{next}, events.Applied(next.Generation))
		return err
	})
}

// largeConfigMap returns a ConfigMap of half a kilobyte that hardly compresses.
func (w *world) largeConfigMap(i int) string {
	value := make([]byte, 256)
	_, _ = rand.Read(value)
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"edited-%d","namespace":%q},"data":{"value":"%x"}}`, i, namespace, value)
}

// editedOnce returns the next generation of spec, in which one manifest is another one.
func (w *world) editedOnce(spec *wire.Spec) (*wire.Spec, error) {
	next, bundle := *spec, *spec.Bundle
	next.Generation, next.Action, next.Bundle = spec.Generation+1, wire.Update, &bundle
	next.Meta.Generation = int64(next.Generation)
	bundle.Manifests = slices.Clone(bundle.Manifests)
	bundle.Manifests[uplinkManifests/2].Raw = []byte(w.largeConfigMap(uplinkManifests / 2))
	hash, err := wire.ContentHash(&bundle)
	next.ContentHash = hash
	return &next, err
}

// bytesOf returns the bytes that go through the link while f runs, and until all is quiet.
func (w *world) bytesOf(ctx context.Context, counted *link, f func() error) (int64, error) {
	if err := w.source.AwaitQuiet(ctx, time.Second); err != nil {
		return 0, err
	}
	before := counted.bytes.Load()
	if err := f(); err != nil {
		return 0, err
	}
	if err := w.source.AwaitQuiet(ctx, time.Second); err != nil {
		return 0, err
	}
	return counted.bytes.Load() - before, nil
}

// fedBackWork makes a work of n ConfigMaps whose value is reported and not changed.
func (w *world) fedBackWork(name string, n int) *wire.Spec {
	bundle, manifests := &wire.Bundle{}, make([]string, n)
	for i := range manifests {
		object := fmt.Sprintf("%s-%d", name, i)
		manifests[i] = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"value":"0"}}`, object, namespace)
		bundle.ManifestConfigs = append(bundle.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: namespace, Name: object},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly},
			FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "value", Path: ".data.value"}}}},
		})
	}
	return w.maker.Work(name, bundle, manifests...)
}

// changeValue changes the value of manifest i of a work and waits until the source is told.
func (w *world) changeValue(ctx context.Context, spec *wire.Spec, i int) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"value": "1"}})
	if err != nil {
		return err
	}
	return w.source.Follow(bounded, spec.UID, func() error {
		_, err := w.Plane.Client.CoreV1().ConfigMaps(namespace).
			Patch(ctx, fmt.Sprintf("%s-%d", spec.Meta.Name, i), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}, says(i, "1"))
}

// says reports whether a status has a feedback value of manifest i.
func says(i int, value string) func(*wire.Status) bool {
	return func(s *wire.Status) bool {
		manifests := s.Status.ResourceStatus.Manifests
		if i >= len(manifests) || len(manifests[i].StatusFeedbacks.Values) == 0 {
			return false
		}
		text := manifests[i].StatusFeedbacks.Values[0].Value.String
		return text != nil && *text == value
	}
}
