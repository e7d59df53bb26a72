package inbox_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/wire"
)

// TestDigests: a digest is of the newest spec that was received, also if it was refused, and of its content if the source
// sends hashes. Works that are being deleted or held do not count.
func TestDigests(t *testing.T) {
	b := watch(nil)
	hash, err := wire.ContentHash(bundle("lamp"))
	if err != nil {
		t.Fatal(err)
	}
	hashed := func(in *wire.Spec) { in.ContentHash = "h" }
	want := map[types.UID]wire.BucketDigest{}
	add := func(name string, generation wire.Generation, hash string) {
		uid := uidOf(name)
		want[uid] = wire.BucketDigest{Works: wire.SpecDigest(uid, generation, false), Contents: wire.ContentDigest(uid, hash)}
	}
	check := func() {
		t.Helper()
		got := b.Digests("hub")
		for _, d := range got {
			if d.BucketDigest != want[d.UID] {
				t.Errorf("%s: %+v, want %+v", d.UID, d.BucketDigest, want[d.UID])
			}
		}
		if len(got) != len(want) || len(b.Digests("nobody")) != 0 {
			t.Errorf("%d works count, want %d", len(got), len(want))
		}
	}
	b.put(t, spec("plain", 2), inbox.Added, keyOf("plain"))
	b.put(t, spec("hashed", 2, of("one"), hashed), inbox.Added, keyOf("hashed"))
	b.put(t, spec("computed", 2, of("one")), inbox.Added, keyOf("computed"))
	b.put(t, spec("deleting", 2), inbox.Added, keyOf("deleting"))
	b.put(t, spec("deleting", 2, deleting), inbox.Deletion, keyOf("deleting"))
	b.put(t, spec("held", 2, of("one")), inbox.Added, keyOf("held"))
	b.put(t, spec("held", 2, bare, deleting, of("two")), inbox.Held, keyOf("held"))
	b.put(t, spec("refused", 2, hashed), inbox.Added, keyOf("refused"))
	b.Refuse(undecodable("refused", 3, "x"), nil)
	b.put(t, spec("older", 2, hashed), inbox.Added, keyOf("older"))
	b.Refuse(undecodable("older", 2, "x"), nil)
	add("plain", 2, "")
	add("hashed", 2, "h")
	add("computed", 2, hash)
	add("refused", 3, "")
	add("older", 2, "")
	check()
	if e := b.get(t, keyOf("computed")); e.ContentHash != hash || e.SourceIdentity != "one" {
		t.Errorf("the hash is not kept, or the identity is not: %+v", e)
	}
	b.put(t, spec("plain", 4), inbox.Replaced, keyOf("plain"))
	add("plain", 4, "")
	check()

	// A source that lists none of them is to be asked for all, but for those that it may know nothing of.
	asked := b.Differing(&wire.StatusResync{Source: "hub", Buckets: &wire.Buckets{Count: 1, Indices: []int{0}}})
	for _, v := range asked {
		if _, counts := want[v.UID]; !counts {
			t.Errorf("asked for %+v", v)
		}
	}
	if len(asked) != len(want) || b.Len() != len(want)+2 {
		t.Errorf("asked for %d works of %d, want %d", len(asked), b.Len(), len(want))
	}
}
