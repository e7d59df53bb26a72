package session

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// The buckets of the database, with their keys and values:
//
//	sessions  session id              → sessionRecord as JSON
//	queue     session id 0x00 number  → entryRecord as JSON; the message's number, 8 bytes big endian
//	messages  number                  → Message.encode
//	retained  topic                   → a message; of former versions, deleted at the start
//
// Numbers ascend in order of arrival, so the order of the keys is the order of the queue. A message
// is deleted with the last queue entry that refers to it.
//
// The buckets are written in this order. A crash in a batch that takes several transactions leaves the beginning of it, which
// is safe: a session that has ended is gone before its queue is, and an entry before its message; a session that
// is new is there before its first entry. An entry that is there before its message is of a message that nobody has
// acknowledged to its publisher, as the batch is not complete. On a full disk the deletions of a batch come before its
// puts: a session that replaced a former one, of which its client was told, may then be back as the former one, empty.

// sessionRecord is a session in the database.
type sessionRecord struct {
	Owner          string         `json:"owner"`
	Expiry         uint32         `json:"expiry"`
	DisconnectedAt int64          `json:"left,omitempty"` // Unix seconds; 0 while a client is connected
	Credential     string         `json:"credential,omitempty"`
	Subs           []Subscription `json:"subs,omitempty"`
}

// entryRecord is a queue entry in the database.
type entryRecord struct {
	Publisher string `json:"from,omitempty"`
}

func messageKey(id uint64) string { return string(binary.BigEndian.AppendUint64(nil, id)) }

func queueKey(sessionID string, id uint64) string { return sessionID + "\x00" + messageKey(id) }

func splitQueueKey(key string) (sessionID string, id uint64, ok bool) {
	i := len(key) - 9
	if i < 0 || key[i] != 0 {
		return "", 0, false
	}
	return key[:i], binary.BigEndian.Uint64([]byte(key[i+1:])), true
}

// storeSession stores s, or deletes it if it is not durable. Callers hold r.mu, as for all
// functions below except readMessage.
func (r *Router) storeSession(s *session) {
	if r.cfg.Store == nil || r.sessions[s.id] != s {
		return
	}
	if !s.durable() {
		r.deleteSession(s)
		return
	}
	r.cfg.Store.Put(Sessions, s.id, func() ([]byte, error) { return json.Marshal(r.record(s)) })
	if !s.stored {
		s.stored, s.subscribed = true, r.barrier()
	}
}

// record returns s as it is now. The store calls it once a commit, without r.mu: a client that
// subscribes to much must not make each of its subscriptions cost all others.
func (r *Router) record(s *session) sessionRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := sessionRecord{Owner: s.owner, Expiry: s.expiry, Credential: s.credential}
	if s.conn == nil {
		rec.DisconnectedAt = s.disconnectedAt.Add(time.Second - 1).Unix() // rounded up: it must not expire too early
	}
	for _, sub := range s.subs {
		rec.Subs = append(rec.Subs, sub)
	}
	return rec
}

func (r *Router) deleteSession(s *session) {
	if s.stored {
		s.stored = false
		r.cfg.Store.Delete(Sessions, s.id)
		r.ends = r.barrier()
	}
}

// storeEntry stores a queue entry, and its message if it is the message's first entry.
func (r *Router) storeEntry(s *session, e *entry) {
	r.writes++
	msg := e.msg
	bytes := int64(entryBytes)
	if msg.storedRefs == 0 {
		bytes += msg.bytes
		body := msg.body
		r.cfg.Store.Add(Messages, messageKey(msg.id), func() ([]byte, error) { return body.encode(), nil })
		r.uncommitted = append(r.uncommitted, msg)
	}
	msg.unwritten += bytes
	r.unwritten += bytes
	msg.storedRefs++
	rec := entryRecord{Publisher: e.publisher}
	r.cfg.Store.Add(Queue, queueKey(s.id, msg.id), func() ([]byte, error) { return json.Marshal(rec) })
	msg.batch = r.barrier()
}

// deleteEntry deletes a queue entry, and its message if it is the message's last entry.
func (r *Router) deleteEntry(s *session, e *entry) {
	r.cfg.Store.Remove(Queue, queueKey(s.id, e.msg.id))
	e.msg.storedRefs--
	if e.msg.storedRefs == 0 {
		r.cfg.Store.Remove(Messages, messageKey(e.msg.id))
		r.written(e.msg)
	}
}

// written no longer counts msg, and its entries, in r.unwritten.
func (r *Router) written(msg *shared) {
	r.unwritten -= msg.unwritten
	msg.unwritten = 0
}

// barrier returns the batch that makes all changes so far durable, or 0 without a store.
func (r *Router) barrier() uint64 {
	if r.cfg.Store == nil {
		return 0
	}
	return r.cfg.Store.Batch()
}

// readMessage returns a message from the store, which has its own lock.
func (r *Router) readMessage(id uint64) (*Message, error) {
	data, ok, err := r.cfg.Store.Get(Messages, messageKey(id))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("message %d is not in the database", id)
	}
	return decodeMessage(data)
}

// loaded is what load has read so far.
type loaded struct {
	messages map[uint64]*shared // nil: it cannot be used
	broken   map[*session]bool  // something of their queue cannot be used
}

// load reads sessions and queues from the store. It deletes queue entries without a session or a
// message, and messages without a queue entry: a crash leaves them. A record that cannot be used
// costs only its session, whose client resyncs; an error means that the store as a whole is damaged.
func (r *Router) load() error {
	l := loaded{messages: map[uint64]*shared{}, broken: map[*session]bool{}}
	for _, step := range []struct {
		bucket statestore.Bucket
		load   func(key string, value []byte) error
	}{
		{Sessions, r.loadSession},
		{Messages, l.loadMessage},
		{Queue, func(key string, value []byte) error { return r.loadEntry(key, value, l) }},
		{Retained, func(string, []byte) error { return errors.New("a former version retained it") }},
	} {
		skip := func(key string, value []byte) error {
			if err := step.load(key, value); err != nil {
				r.cfg.Logger.Warn("stored record deleted, it cannot be used", "bucket", step.bucket, "reason", err)
				r.cfg.Store.Delete(step.bucket, key)
			}
			return nil
		}
		if err := r.cfg.Store.Each(step.bucket, skip); err != nil {
			return fmt.Errorf("load %s from the broker's database: %w: %w", step.bucket, statestore.ErrDamaged, err)
		}
	}
	for id, msg := range l.messages {
		r.lastID = max(r.lastID, id)
		if msg != nil && msg.refs == 0 {
			r.cfg.Store.Delete(Messages, messageKey(id))
		}
	}
	for _, s := range byID(slices.Collect(maps.Keys(l.broken))) {
		r.end(s, Unreadable)
	}
	r.limitTotal()
	return nil
}

func (r *Router) loadSession(id string, value []byte) error {
	var rec sessionRecord
	if err := json.Unmarshal(value, &rec); err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	s := r.addSession(id, rec.Owner)
	s.expiry, s.credential, s.disconnectedAt, s.stored = r.limitExpiry(s, rec.Expiry), rec.Credential, r.cfg.Now(), true
	if rec.DisconnectedAt > 0 {
		s.disconnectedAt = time.Unix(rec.DisconnectedAt, 0)
	}
	for _, sub := range rec.Subs {
		s.subs[sub.Filter] = sub
		r.index.add(s, sub)
	}
	if rec.DisconnectedAt == 0 {
		r.storeSession(s) // since now, also for later starts
	}
	return nil
}

// loadMessage adds a message to l, without its body.
func (l loaded) loadMessage(key string, value []byte) error {
	if len(key) != 8 {
		return errors.New("a message has a key of the wrong length")
	}
	id := binary.BigEndian.Uint64([]byte(key))
	expires, err := decodeExpiry(value)
	if err != nil {
		l.messages[id] = nil
		return err
	}
	l.messages[id] = &shared{id: id, bytes: int64(len(value)), expires: expires}
	return nil
}

// loadEntry adds an entry to its queue, or deletes it if it has no session or no message.
func (r *Router) loadEntry(key string, value []byte, l loaded) error {
	sessionID, id, ok := splitQueueKey(key)
	s := r.sessions[sessionID]
	msg, known := l.messages[id]
	r.lastID = max(r.lastID, id) // an entry without a message is not to become that of a later one
	if !ok || s == nil || !known {
		r.cfg.Store.Delete(Queue, key)
		return nil
	}
	var rec entryRecord
	err := json.Unmarshal(value, &rec)
	if err == nil && msg == nil {
		err = errors.New("its message cannot be used")
	}
	if err != nil {
		l.broken[s] = true
		return fmt.Errorf("queue of session %s: %w", sessionID, err)
	}
	r.push(s, msg, &entry{qos: 1, state: waiting, publisher: rec.Publisher, stored: true})
	msg.storedRefs++
	return nil
}
