package mqttflood

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

const (
	every      = 5 * time.Millisecond // between two round trips, whether or not the former ones are back
	specSize   = 2048
	statusSize = 1024
	probeMark  = "probe "
)

// Probe makes round trips between a source and an agent, who harm nobody: the source publishes a spec
// with QoS 1, the agent acknowledges it and publishes a status with QoS 1. A round trip is complete
// when the source has the status, and both have their PUBACK. One goroutine at a time may use it.
type Probe struct {
	hub, agent *peer
	down, up   string // topics

	mu      sync.Mutex
	last    uint16
	pending map[uint16]*trip
	took    []time.Duration
	foreign int64 // messages of others that the source has received
	failure error
	changed chan struct{} // receives when nothing is pending, or after a failure
}

type trip struct {
	start   time.Time
	missing int
}

type peer struct {
	net.Conn
	writing sync.Mutex
}

// NewProbe returns a probe of two connected clients, which are subscribed here. Close their
// connections when done.
func NewProbe(hub, agent net.Conn, source, cluster string) (*Probe, error) {
	p := &Probe{
		hub: &peer{Conn: hub}, agent: &peer{Conn: agent}, pending: map[uint16]*trip{}, changed: make(chan struct{}, 1),
		down: "sources/" + source + "/clusters/" + cluster + "/sourceevents", up: "sources/" + source + "/clusters/" + cluster + "/agentevents",
	}
	hubReader, agentReader := bufio.NewReader(hub), bufio.NewReader(agent)
	for _, side := range []struct {
		to     *peer
		reader *bufio.Reader
		filter string
	}{{p.hub, hubReader, "sources/" + source + "/clusters/+/agentevents"}, {p.agent, agentReader, "sources/+/clusters/" + cluster + "/sourceevents"}} {
		if err := side.to.write(mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: side.filter, Options: 1})); err != nil {
			return nil, err
		}
		got, err := mqttraw.Read(side.reader)
		if err == nil && (got.Type != mqttraw.SUBACK || got.Code() >= 0x80) {
			err = fmt.Errorf("the broker answers %v", got)
		}
		if err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", side.filter, err)
		}
	}
	go p.serve("the agent", agentReader, p.agentReceives)
	go p.serve("the source", hubReader, p.hubReceives)
	return p, nil
}

func (p *peer) write(packet []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.Write(packet)
	return err
}

// serve reads packets until the connection ends.
func (p *Probe) serve(who string, r *bufio.Reader, receive func(*mqttraw.Received) error) {
	for {
		got, err := mqttraw.Read(r)
		switch {
		case err != nil:
		case got.Type == mqttraw.PUBACK && got.Code() >= 0x80, got.Type == mqttraw.DISCONNECT:
			err = fmt.Errorf("the broker sends %v", got)
		case got.Type == mqttraw.PUBACK:
			p.arrived(got.ID)
		case got.Type == mqttraw.PUBLISH:
			err = receive(got)
		}
		if err != nil {
			p.fail(fmt.Errorf("%s: %w", who, err))
			return
		}
	}
}

// agentReceives acknowledges a spec and answers by a status.
func (p *Probe) agentReceives(got *mqttraw.Received) error {
	name, _, _ := strings.Cut(got.Payload, ":")
	id, err := strconv.ParseUint(strings.TrimPrefix(name, probeMark), 10, 16)
	if err != nil {
		return fmt.Errorf("receives %.20q", got.Payload)
	}
	status := name + ":" + strings.Repeat("s", statusSize)
	return p.agent.write(mqttraw.Bytes(mqttraw.Puback(got.ID), mqttraw.Publish(mqttraw.QoS1, uint16(id), p.up, status)))
}

// hubReceives acknowledges a status, also those of others.
func (p *Probe) hubReceives(got *mqttraw.Received) error {
	if rest, probe := strings.CutPrefix(got.Payload, probeMark); probe {
		name, _, _ := strings.Cut(rest, ":")
		id, _ := strconv.ParseUint(name, 10, 16)
		p.arrived(uint16(id))
	} else {
		p.mu.Lock()
		p.foreign++
		p.mu.Unlock()
	}
	if got.QoS() == 0 {
		return nil
	}
	return p.hub.write(mqttraw.Puback(got.ID))
}

// arrived counts a part of a round trip.
func (p *Probe) arrived(id uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.pending[id]
	if t == nil {
		return
	}
	if t.missing--; t.missing > 0 {
		return
	}
	p.took = append(p.took, time.Since(t.start))
	delete(p.pending, id)
	if len(p.pending) == 0 {
		p.signal()
	}
}

func (p *Probe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		p.failure = err
	}
	p.signal()
}

func (p *Probe) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Foreign returns how many messages of others the source has received.
func (p *Probe) Foreign() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreign
}

// Measure starts a round trip every 5 ms for the given time, waits for all, and returns how long they
// took, the shortest first. An error means that one of the clients was not served, or ctx has ended.
func (p *Probe) Measure(ctx context.Context, during time.Duration) ([]time.Duration, error) {
	p.mu.Lock()
	p.took = nil
	p.mu.Unlock()
	for start, next := time.Now(), time.Now(); next.Sub(start) < during; next = next.Add(every) {
		if wait := time.Until(next); wait > 0 { // a late one counts from when it was due
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		p.mu.Lock()
		p.last = p.last%60_000 + 1
		id, err := p.last, p.failure
		p.pending[id] = &trip{start: next, missing: 3}
		p.mu.Unlock()
		if err != nil {
			return nil, err
		}
		spec := probeMark + strconv.Itoa(int(id)) + ":" + strings.Repeat("x", specSize)
		if err := p.hub.write(mqttraw.Publish(mqttraw.QoS1, id, p.down, spec)); err != nil {
			return nil, err
		}
	}
	for {
		p.mu.Lock()
		left, err, took := len(p.pending), p.failure, slices.Sorted(slices.Values(p.took))
		p.mu.Unlock()
		if left == 0 || err != nil {
			return took, err
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d round trips are not complete: %w", left, ctx.Err())
		}
	}
}

// Quantile returns the time within which the share q of sorted times lies; 0 for none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
