package wire_test

import (
	"errors"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

func specEvent(t *testing.T, identity string) cloudevents.Event {
	t.Helper()
	e, err := wire.Encode(&wire.Spec{
		UID: lantern, Generation: 3, Source: "harbor", Cluster: "quay-7", Action: wire.Update, SourceIdentity: identity,
		Meta:   metav1.ObjectMeta{Name: "lantern", Namespace: "quay-7"},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}}}},
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestSealedForm: the form of docs/protocol.md, Sealed data.
func TestSealedForm(t *testing.T) {
	t.Parallel()
	e := specEvent(t, "m1")
	want := "22:workwire.dev/sealed/v1,16:0123456789abcdef," +
		"77:io.open-cluster-management.works.v1alpha1.manifestbundles.spec.update_request,6:harbor,6:quay-7," +
		"36:" + lantern + ",1:3,"
	if got := string(wire.SealedContext(e, "0123456789abcdef")); got != want {
		t.Errorf("context %s, want %s", got, want)
	}
	if err := wire.SetSealed(&e, wire.Sealed{KeyID: "0123456789abcdef", Box: []byte("box")}, "masked"); err != nil {
		t.Fatal(err)
	}
	if got := string(e.Data()); got != "sealed/v1:0123456789abcdef:box" || e.DataContentType() != "application/vnd.workwire.sealed" || wire.ContentHashOf(e) != "masked" {
		t.Errorf("the event has %q, %q and %q", got, e.DataContentType(), wire.ContentHashOf(e))
	}
	sealed, err := wire.ParseSealed(e)
	if err != nil || sealed.KeyID != "0123456789abcdef" || string(sealed.Box) != "box" {
		t.Errorf("parsed %+v, %v", sealed, err)
	}
	without := specEvent(t, "")
	if err := wire.SetSealed(&without, sealed, "masked"); err != nil || wire.ContentHashOf(without) != "" {
		t.Errorf("an event without content hash has %q, %v", wire.ContentHashOf(without), err)
	}
}

// TestSealedDecode: an event with sealed data names its work, and is never misread.
func TestSealedDecode(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"sealed/v1:0123456789abcdef:box", "sealed/v1:", "sealed/v1:{}"} {
		e := specEvent(t, "")
		if err := e.SetData("application/json", []byte(data)); err != nil {
			t.Fatal(err)
		}
		_, err := wire.Decode(e)
		var failure *wire.DecodeError
		if !errors.Is(err, wire.ErrSealed) || !errors.As(err, &failure) || failure.Spec == nil || failure.Spec.UID != lantern || failure.Spec.Generation != 3 {
			t.Errorf("%s decodes with %v, %+v", data, err, failure)
		}
	}
	status := specEvent(t, "")
	status.SetType("io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request")
	if err := status.SetData("application/json", []byte("sealed/v1:0123456789abcdef:box")); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ParseSealed(status); err == nil || wire.IsSealable(status) {
		t.Error("a status counts as sealed")
	}
}

func TestMaskContentHash(t *testing.T) {
	t.Parallel()
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	first := wire.MaskContentHash([]byte("secret"), "c1", "u1", 1, hash)
	if len(first) != 64 || first == hash || first != wire.MaskContentHash([]byte("secret"), "c1", "u1", 1, hash) {
		t.Errorf("masked %s", first)
	}
	for name, other := range map[string]string{
		"secret": wire.MaskContentHash([]byte("other"), "c1", "u1", 1, hash), "cluster": wire.MaskContentHash([]byte("secret"), "c2", "u1", 1, hash),
		"uid": wire.MaskContentHash([]byte("secret"), "c1", "u2", 1, hash), "generation": wire.MaskContentHash([]byte("secret"), "c1", "u1", 2, hash),
		"hash": wire.MaskContentHash([]byte("secret"), "c1", "u1", 1, "0"+hash[1:]),
	} {
		if other == first {
			t.Errorf("another %s has the same mask", name)
		}
	}
}
