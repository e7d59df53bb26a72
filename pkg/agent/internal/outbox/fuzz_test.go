package outbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// FuzzStoredStatus: a stored status that can be read can be sent, and is the same after a round
// trip.
func FuzzStoredStatus(f *testing.F) {
	f.Add([]byte(`{"source":"hub","uid":"u","cluster":"quay","version":{"hash":"h","generation":2,"final":true},"metadata":{"name":"n"},` +
		`"status":{"conditions":[{"type":"Applied","status":"True","lastTransitionTime":"2031-03-04T05:06:07Z","reason":"R","message":"m"}],` +
		`"resourceStatus":{"manifests":[{"resourceMeta":{"name":"a"},"statusFeedback":{},"conditions":null}]}},"trace":"{}","answer":true}`))
	f.Add([]byte(`{"source":"hub","uid":"u","cluster":"quay","version":{"hash":"h","generation":-1}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeStatus(data)
		if err != nil {
			return
		}
		if r.Source == "" || r.UID == "" || r.Cluster == "" || r.Version.Hash == "" || r.Version.Generation < 0 {
			t.Fatalf("decode takes %+v", r)
		}
		for _, form := range []form{whole, withoutValues, conditionsOnly} {
			status := form.reduce(r.Status, r.Meta.CreationTimestamp.Time)
			if _, err := wire.StatusHash(&status); err != nil {
				t.Fatalf("what was decoded has no hash: %v", err)
			}
		}
		roundTrip(t, r, func(data []byte) (any, error) { return decodeStatus(data) })
	})
}

// FuzzStoredAck does the same for acknowledged statuses.
func FuzzStoredAck(f *testing.F) {
	f.Add([]byte(`{"hash":"h","generation":2,"sent":"h","sequence":2690781301568442368}`))
	f.Add([]byte(`{"hash":"h","sent":"h","sequence":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeAck(data)
		if err != nil {
			return
		}
		var s wire.Sequence
		s.Resume(r.Sequence)
		if next := s.Next(time.UnixMilli(0)); next <= r.Sequence {
			t.Fatalf("after sequence id %d comes %d", r.Sequence, next)
		}
		roundTrip(t, r, func(data []byte) (any, error) { return decodeAck(data) })
	})
}

func roundTrip(t *testing.T, r any, decode func([]byte) (any, error)) {
	t.Helper()
	data, err := encoder(r)()
	if err != nil {
		t.Fatalf("encode of what was decoded: %v", err)
	}
	again, err := decode(data)
	if err != nil {
		t.Fatalf("decode of what was encoded: %v", err)
	}
	if a, _ := json.Marshal(again); string(a) != string(data) {
		t.Fatalf("differs after a round trip:\n%s\n%s", data, a)
	}
}
