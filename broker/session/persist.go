package session

import (
	"container/list"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/workwire/workwire/broker/store"
)

// What the database holds:
//
//	sessions  session id              → sessionRecord as JSON
//	queue     session id 0x00 number  → entryRecord as JSON; number is the message's, 8 bytes big endian
//	messages  number                  → message.encode
//	retained  topic                   → message.encode
//
// Numbers grow with arrival, so that the order of the keys is the order of a queue. A
// message is deleted with the last queue entry that has its number.

type sessionRecord struct {
	Owner  string         `json:"owner"`
	Expiry uint32         `json:"expiry"`
	Left   int64          `json:"left,omitempty"` // Unix seconds; 0 while a client is connected
	Subs   []Subscription `json:"subs,omitempty"`
}

type entryRecord struct {
	Retain bool  `json:"retain,omitempty"`
	SubIDs []int `json:"subIDs,omitempty"`
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

// record writes what must be known of s after a restart. Callers hold r.mu, as for all
// functions below but read.
func (r *Router) record(s *session) {
	if r.cfg.Store == nil || r.sessions[s.id] != s {
		return
	}
	if !s.durable() {
		r.forget(s)
		return
	}
	rec := sessionRecord{Owner: s.owner, Expiry: s.expiry}
	if s.conn == nil {
		rec.Left = s.since.Unix()
	}
	for _, sub := range s.subs {
		rec.Subs = append(rec.Subs, sub)
	}
	slices.SortFunc(rec.Subs, func(a, b Subscription) int { return strings.Compare(a.Filter, b.Filter) })
	s.recorded = true
	r.cfg.Store.Put(store.Sessions, s.id, func() []byte { return mustJSON(rec) })
}

func (r *Router) forget(s *session) {
	if s.recorded {
		s.recorded = false
		r.cfg.Store.Delete(store.Sessions, s.id)
	}
}

// keep writes a queue entry and, with the first one, its message.
func (r *Router) keep(s *session, e *entry) {
	e.onDisk = true
	r.writes++
	msg := e.msg
	if msg.diskRefs == 0 {
		body := msg.body
		r.cfg.Store.Add(store.Messages, messageKey(msg.id), body.encode)
		r.fresh = append(r.fresh, msg)
	}
	msg.diskRefs++
	rec := entryRecord{Retain: e.retain, SubIDs: e.subIDs}
	r.cfg.Store.Add(store.Queue, queueKey(s.id, msg.id), func() []byte { return mustJSON(rec) })
	msg.batch = r.barrier()
}

func (r *Router) unkeep(s *session, e *entry) {
	r.cfg.Store.Remove(store.Queue, queueKey(s.id, e.msg.id))
	e.msg.diskRefs--
	if e.msg.diskRefs == 0 {
		r.cfg.Store.Remove(store.Messages, messageKey(e.msg.id))
	}
}

func (r *Router) keepRetained(m *Message) {
	if r.cfg.Store != nil {
		r.writes++
		r.cfg.Store.Put(store.Retained, m.Topic, m.encode)
	}
}

func (r *Router) forgetRetained(topic string) {
	if r.cfg.Store != nil {
		r.writes++
		r.cfg.Store.Delete(store.Retained, topic)
	}
}

// barrier returns the batch with which everything so far is durable; 0 without a store.
func (r *Router) barrier() uint64 {
	if r.cfg.Store == nil {
		return 0
	}
	return r.cfg.Store.Barrier()
}

// read returns a message from disk. The store has its own lock.
func (r *Router) read(id uint64) (*Message, error) {
	data, ok, err := r.cfg.Store.Get(store.Messages, messageKey(id))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("message %d is not in the database", id)
	}
	return decodeMessage(data)
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of strings and numbers
	}
	return data
}

// reset makes the maps of a new session.
func (s *session) reset() {
	s.subs = map[string]Subscription{}
	s.ids = map[uint16]*list.Element{}
}

// adopt puts a new session into the router's maps.
func (r *Router) adopt(s *session) {
	r.sessions[s.id] = s
	if r.owners[s.owner] == nil {
		r.owners[s.owner] = map[*session]struct{}{}
	}
	r.owners[s.owner][s] = struct{}{}
}

// load reads the sessions, their queues and the retained messages from the store, and has
// deleted what no session needs.
func (r *Router) load() error {
	if err := r.cfg.Store.Each(store.Sessions, r.loadSession); err != nil {
		return fmt.Errorf("load sessions from the broker's database: %w", err)
	}
	sizes := map[uint64]*shared{}
	err := r.cfg.Store.Each(store.Messages, func(key string, value []byte) error {
		if len(key) != 8 {
			return errors.New("a message has a key of the wrong length")
		}
		id := binary.BigEndian.Uint64([]byte(key))
		expires, err := decodeExpiry(value)
		sizes[id] = &shared{id: id, bytes: int64(len(value)), expires: expires}
		r.lastID = max(r.lastID, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("load messages from the broker's database: %w", err)
	}
	var orphans []string
	err = r.cfg.Store.Each(store.Queue, func(key string, value []byte) error {
		ok, err := r.loadEntry(key, value, sizes)
		if !ok {
			orphans = append(orphans, key)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("load queues from the broker's database: %w", err)
	}
	for _, key := range orphans {
		r.cfg.Store.Delete(store.Queue, key)
	}
	for id, msg := range sizes {
		if msg.refs == 0 {
			r.cfg.Store.Delete(store.Messages, messageKey(id))
		}
	}
	err = r.cfg.Store.Each(store.Retained, func(topic string, value []byte) error {
		m, err := decodeMessage(slices.Clone(value))
		if err != nil {
			return err
		}
		r.retained[topic] = m
		r.retainedB += m.size()
		return nil
	})
	if err != nil {
		return fmt.Errorf("load retained messages from the broker's database: %w", err)
	}
	return nil
}

func (r *Router) loadSession(id string, value []byte) error {
	var rec sessionRecord
	if err := json.Unmarshal(value, &rec); err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	s := &session{id: id, owner: rec.Owner, expiry: rec.Expiry, since: r.cfg.Now(), recorded: true}
	if rec.Left > 0 {
		s.since = time.Unix(rec.Left, 0)
	}
	s.reset()
	for _, sub := range rec.Subs {
		s.subs[sub.Filter] = sub
		r.index.add(s, sub)
	}
	r.adopt(s)
	return nil
}

// loadEntry returns false when the entry belongs to no session or has no message.
func (r *Router) loadEntry(key string, value []byte, messages map[uint64]*shared) (bool, error) {
	sessionID, id, ok := splitQueueKey(key)
	s, msg := r.sessions[sessionID], messages[id]
	if !ok || s == nil || msg == nil {
		return false, nil
	}
	var rec entryRecord
	if err := json.Unmarshal(value, &rec); err != nil {
		return true, fmt.Errorf("queue of session %s: %w", sessionID, err)
	}
	s.queue.PushBack(&entry{msg: msg, qos: 1, retain: rec.Retain, subIDs: rec.SubIDs, onDisk: true})
	msg.refs++
	msg.diskRefs++
	s.bytes += msg.bytes
	r.stats.Queued++
	r.stats.QueuedBytes += msg.bytes
	return true, nil
}
