package events

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// Source is a source of works for one cluster. Its methods may be called from any goroutine, one
// campaign at a time.
type Source struct {
	id      wire.SourceID
	cluster wire.ClusterName
	topic   string
	client  *client
	answers sync.WaitGroup

	mu       sync.Mutex
	works    map[types.UID]*wire.Spec
	hashes   map[types.UID]string       // of the last status
	large    map[types.UID]*wire.Status // the last status, if deltas of it may come; nil: none may
	counts   Counts
	asked    chan Asked // the agent's resync requests; the newest are dropped when full
	campaign *campaign  // nil: none
	last     time.Time  // when something last came
	err      error      // the first that could not be read
}

// Counts are messages since the source began.
type Counts struct {
	Statuses  int // from the agent
	Resyncs   int // requests for specs, from the agent
	Presences int // from the agent
	Answers   int // specs and deletions sent in answer to resyncs, without those of probes
	Data      int // bytes of the data of statuses before compression
}

// Since is what came after before.
func (c Counts) Since(before Counts) Counts {
	return Counts{Statuses: c.Statuses - before.Statuses, Resyncs: c.Resyncs - before.Resyncs,
		Presences: c.Presences - before.Presences, Answers: c.Answers - before.Answers, Data: c.Data - before.Data}
}

// AcceptAll makes the source read all forms of statuses, which its specs then say, and compress specs.
func (s *Source) AcceptAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.large = map[types.UID]*wire.Status{}
}

// Asked is a resync request of the agent: it is subscribed.
type Asked struct {
	// Sent is when the agent made the request.
	Sent time.Time
}

type campaign struct {
	start   time.Time
	open    map[types.UID]struct{}
	met     func(*wire.Status) bool
	elapsed map[types.UID]time.Duration
	done    chan struct{}
}

// NewSource connects a source.
func NewSource(ctx context.Context, broker config.Config, id wire.SourceID, cluster wire.ClusterName) (*Source, error) {
	s := &Source{
		id: id, cluster: cluster, topic: fmt.Sprintf("sources/%s/clusters/%s/sourceevents", id, cluster),
		works: map[types.UID]*wire.Spec{}, hashes: map[types.UID]string{}, asked: make(chan Asked, 16),
	}
	var err error
	s.client, err = connect(ctx, broker, string(id)+"-source", []string{broker.Topics.AgentEvents}, s.received)
	return s, err
}

// Close disconnects. It may be called on nil.
func (s *Source) Close() error {
	if s == nil {
		return nil
	}
	s.answers.Wait()
	return s.client.close()
}

// Counts are the messages so far.
func (s *Source) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// AwaitAsked waits for a resync request made after a time.
func (s *Source) AwaitAsked(ctx context.Context, after time.Time) (Asked, error) {
	for {
		select {
		case asked := <-s.asked:
			if !asked.Sent.Before(after) {
				return asked, nil
			}
		case <-ctx.Done():
			return Asked{}, fmt.Errorf("the agent does not ask for its works: %w", context.Cause(ctx))
		}
	}
}

// AwaitQuiet waits until nothing has come for d.
func (s *Source) AwaitQuiet(ctx context.Context, d time.Duration) error {
	begin := time.Now()
	for {
		s.mu.Lock()
		quiet := time.Since(later(begin, s.last))
		s.mu.Unlock()
		if quiet >= d {
			return nil
		}
		select {
		case <-time.After(d - quiet):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Took is how long a campaign took.
type Took struct {
	// All is the time from the first publish to the last status that was awaited, Published that
	// until the broker had taken all.
	All, Published time.Duration
	// Each is the time from the first publish to each work's status, by UID.
	Each map[types.UID]time.Duration
}

// Publish publishes specs and waits until a status has come for each of them of which met says that
// it is what is awaited.
func (s *Source) Publish(ctx context.Context, specs []*wire.Spec, met func(*wire.Status) bool) (Took, error) {
	packets := make([]packet, len(specs))
	uids := make([]types.UID, len(specs))
	s.mu.Lock()
	accepts := wire.Accepts{}
	if s.large != nil {
		accepts = wire.Accepted
	}
	s.mu.Unlock()
	for i, spec := range specs {
		var err error
		spec.Accepts = accepts
		if packets[i], err = encode(s.topic, spec); err != nil {
			return Took{}, err
		}
		uids[i] = spec.UID
	}
	s.mu.Lock()
	for _, spec := range specs {
		s.works[spec.UID] = spec
	}
	s.mu.Unlock()
	return s.run(ctx, packets, uids, met)
}

// PublishDelta publishes spec as its difference from before, which the agent has with its content hash, and
// waits as [Source.Publish] does.
func (s *Source) PublishDelta(ctx context.Context, spec, before *wire.Spec, met func(*wire.Status) bool) (Took, error) {
	data, err := json.Marshal(spec.Bundle)
	if err != nil {
		return Took{}, err
	}
	base, err := json.Marshal(before.Bundle)
	if err != nil {
		return Took{}, err
	}
	spec.Accepts = wire.Accepted
	delta, err := wire.NewSpecDelta(spec, data, base)
	if err != nil {
		return Took{}, err
	}
	p, err := encode(s.topic, delta)
	if err != nil {
		return Took{}, err
	}
	s.mu.Lock()
	s.works[spec.UID] = spec
	s.mu.Unlock()
	return s.run(ctx, []packet{p}, []types.UID{spec.UID}, met)
}

// Ask sends a status resync request for all works, as a source does that has none of their statuses
// or, when current is set, all of them, and waits for the answers, which are none in the latter
// case.
func (s *Source) Ask(ctx context.Context, current bool) (Took, error) {
	request := &wire.StatusResync{Source: s.id, Cluster: s.cluster}
	var uids []types.UID
	s.mu.Lock()
	for uid := range s.works {
		hash := "0"
		if current {
			hash = s.hashes[uid]
		} else {
			uids = append(uids, uid)
		}
		request.Hashes = append(request.Hashes, wire.StatusVersion{UID: uid, Hash: hash})
	}
	s.mu.Unlock()
	var packets []packet
	for _, part := range request.Split(500 << 10) { // as a source does that obeys a broker's limit
		p, err := encode(s.topic, part)
		if err != nil {
			return Took{}, err
		}
		packets = append(packets, p)
	}
	return s.run(ctx, packets, uids, func(*wire.Status) bool { return true })
}

// Await begins a campaign that publishes nothing itself: start is called, then a status of each
// work is awaited.
func (s *Source) Await(ctx context.Context, start func() error) (Took, error) {
	s.mu.Lock()
	var uids []types.UID
	for uid := range s.works {
		uids = append(uids, uid)
	}
	s.mu.Unlock()
	c := s.begin(uids, func(*wire.Status) bool { return true })
	if err := start(); err != nil {
		return Took{}, err
	}
	return s.finish(ctx, c, 0)
}

// Follow calls begin and waits until met says of a status of a work that it is what is awaited.
func (s *Source) Follow(ctx context.Context, uid types.UID, begin func() error, met func(*wire.Status) bool) error {
	c := s.begin([]types.UID{uid}, met)
	if err := begin(); err != nil {
		return err
	}
	_, err := s.finish(ctx, c, 0)
	return err
}

func (s *Source) run(ctx context.Context, packets []packet, uids []types.UID, met func(*wire.Status) bool) (Took, error) {
	c := s.begin(uids, met)
	if err := publish(ctx, s.client.link, packets); err != nil {
		return Took{}, err
	}
	return s.finish(ctx, c, time.Since(c.start))
}

func (s *Source) begin(uids []types.UID, met func(*wire.Status) bool) *campaign {
	c := &campaign{open: make(map[types.UID]struct{}, len(uids)), met: met, elapsed: make(map[types.UID]time.Duration, len(uids)), done: make(chan struct{})}
	for _, uid := range uids {
		c.open[uid] = struct{}{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.start = time.Now()
	if len(uids) == 0 {
		close(c.done)
	} else {
		s.campaign = c
	}
	return c
}

func (s *Source) finish(ctx context.Context, c *campaign, published time.Duration) (Took, error) {
	var err error
	select {
	case <-c.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.campaign = nil
	if err != nil {
		return Took{}, fmt.Errorf("%d of %d statuses have not come: %w", len(c.open), len(c.open)+len(c.elapsed), err)
	}
	took := Took{Published: published, Each: c.elapsed}
	for _, elapsed := range c.elapsed {
		took.All = max(took.All, elapsed)
	}
	return took, s.err
}

func (s *Source) received(m transport.Message) {
	now := time.Now()
	message, err := wire.Decode(m.Event)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
	if delta, ok := message.(*wire.StatusDelta); ok && err == nil {
		message, err = s.resolve(delta)
	}
	if err != nil {
		if s.err == nil {
			s.err = err
		}
		return
	}
	switch message := message.(type) {
	case *wire.Status:
		s.counts.Statuses++
		if data, err := wire.PlainData(m.Event); err == nil {
			s.counts.Data += len(data)
		}
		if s.large != nil {
			s.large[message.UID] = message
		}
		s.hashes[message.UID] = message.Hash
		if Gone(message) {
			delete(s.works, message.UID)
			delete(s.hashes, message.UID)
		}
		if s.campaign != nil {
			s.campaign.observe(message, now)
		}
	case *wire.Presence:
		s.counts.Presences++
	case *wire.SpecResync:
		s.counts.Resyncs++
		sent := m.Event.Time()
		if sent.IsZero() {
			sent = now
		}
		select {
		case s.asked <- Asked{Sent: sent}:
		default:
		}
		s.answer(message)
	}
}

// resolve returns the status of a delta. s.mu is held.
func (s *Source) resolve(d *wire.StatusDelta) (*wire.Status, error) {
	base := s.large[d.Of.UID]
	if base == nil || base.Hash != d.Base {
		return nil, fmt.Errorf("a delta of a status of work %s that the source does not have", d.Of.UID)
	}
	return d.Apply(&base.Status)
}

func (c *campaign) observe(status *wire.Status, now time.Time) {
	if _, open := c.open[status.UID]; !open || !c.met(status) {
		return
	}
	delete(c.open, status.UID)
	c.elapsed[status.UID] = now.Sub(c.start)
	if len(c.open) == 0 {
		close(c.done)
	}
}

// answer sends what the agent does not have. s.mu is held.
func (s *Source) answer(request *wire.SpecResync) {
	held := make(map[types.UID]wire.Generation, len(request.Versions))
	for _, version := range request.Versions {
		held[version.UID] = version.Generation
	}
	var messages []*wire.Spec
	for uid, work := range s.works {
		if have, holds := held[uid]; !holds || work.IsDeletion() || work.Generation > have {
			spec := *work
			spec.Action = wire.ResyncResponse
			messages = append(messages, &spec)
		}
	}
	s.counts.Answers += len(messages)
	for _, lost := range request.Versions {
		if s.works[lost.UID] != nil {
			continue
		}
		if !lost.Probe {
			s.counts.Answers++
		}
		now := metav1.Now()
		messages = append(messages, &wire.Spec{UID: lost.UID, Generation: lost.Generation, Source: s.id, Cluster: s.cluster,
			Action: wire.ResyncResponse, NoMetadata: true, DeletionTimestamp: &now})
	}
	s.answers.Go(func() {
		packets := make([]packet, 0, len(messages))
		for _, message := range messages {
			p, err := encode(s.topic, message)
			if err != nil {
				s.failed(err)
				return
			}
			packets = append(packets, p)
		}
		if err := publish(context.Background(), s.client.link, packets); err != nil {
			s.failed(err)
		}
	})
}

func (s *Source) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}
