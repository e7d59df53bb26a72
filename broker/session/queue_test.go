package session

import (
	"container/list"
	"maps"
	"testing"
)

// TestCounts: what is in a queue counts for the session, the publisher and the router, and what has left it does not, so that
// its room is room again.
func TestCounts(t *testing.T) {
	r := &Router{publishers: map[string]held{}}
	s := &session{byPacketID: map[uint16]*list.Element{}, publishers: map[string]amount{}}
	const place = entryBytes
	counts := func(queued amount, cached int64, of map[string]held) {
		t.Helper()
		var all, memory int64
		own := map[string]amount{}
		for publisher, h := range of {
			all, memory = all+h.bytes, memory+h.memory
			own[publisher] = amount{1, h.bytes}
		}
		if s.queued != queued || s.memory != memory || !maps.Equal(s.publishers, own) {
			t.Errorf("of the session count %+v, %d bytes in memory and %+v; want %+v, %d and %+v", s.queued, s.memory, s.publishers, queued, memory, own)
		}
		if r.totalBytes != all || r.totalMemory != memory || r.cachedBytes != cached || !maps.Equal(r.publishers, of) {
			t.Errorf("of all count %d, %d and %d bytes, %+v; want %d, %d, %d and %+v", r.totalBytes, r.totalMemory, r.cachedBytes, r.publishers, all, memory, cached, of)
		}
	}
	late, now := newShared(&Message{Payload: make([]byte, 100), Expires: 2}), newShared(&Message{Payload: make([]byte, 10), Expires: 1})
	r.cachedBytes = late.bytes + now.bytes // as enqueue does
	first := r.push(s, late, &entry{publisher: "p"})
	counts(amount{1, late.bytes + place}, r.cachedBytes, map[string]held{"p": {late.bytes + place, late.bytes + place}})
	second := r.push(s, now, &entry{publisher: "q"})
	counts(amount{2, late.bytes + now.bytes + 2*place}, r.cachedBytes,
		map[string]held{"p": {late.bytes + place, late.bytes + place}, "q": {now.bytes + place, now.bytes + place}})
	r.remove(s, first)
	counts(amount{1, now.bytes + place}, now.bytes, map[string]held{"q": {now.bytes + place, now.bytes + place}})
	if r.expiring.Len() != 1 || late.body != nil {
		t.Errorf("%d entries can expire, and the body of what has left is %v", r.expiring.Len(), late.body)
	}
	r.remove(s, second)
	counts(amount{}, 0, map[string]held{})
}

// TestBodiesLeaveMemory: the body of a message whose other entries are on disk leaves a full cache with its last entry in memory, or
// once it is on disk itself.
func TestBodiesLeaveMemory(t *testing.T) {
	for name, committed := range map[string]uint64{"on disk": 1, "not yet on disk": 0} {
		t.Run(name, func(t *testing.T) {
			msg := newShared(&Message{Payload: make([]byte, 100)})
			r := &Router{publishers: map[string]held{}, cachedBytes: bodyCache + 2*msg.bytes, committed: committed}
			s := &session{byPacketID: map[uint16]*list.Element{}, publishers: map[string]amount{}}
			first, second := r.push(s, msg, &entry{}), r.push(s, msg, &entry{})
			r.push(s, msg, &entry{stored: true})
			msg.storedRefs, msg.batch, r.uncommitted = 1, 1, []*shared{msg, msg} // again, as after its first entry on disk has gone
			r.remove(s, first)
			if r.totalMemory != msg.bytes+entryBytes || msg.body == nil {
				t.Errorf("with an entry in memory: %d bytes count there, the body is there: %v", r.totalMemory, msg.body != nil)
			}
			r.remove(s, second)
			if onDisk := committed > 0; r.totalMemory != 0 || (msg.body == nil) != onDisk {
				t.Errorf("without: %d bytes count in memory, the body is there: %v", r.totalMemory, msg.body != nil)
			}
			r.Committed(1)
			if msg.body != nil || r.cachedBytes != bodyCache+msg.bytes {
				t.Errorf("afterwards: the body is there: %v, %d bytes over the limit are cached", msg.body != nil, r.cachedBytes-bodyCache)
			}
		})
	}
}
