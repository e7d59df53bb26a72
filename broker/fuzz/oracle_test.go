package fuzz

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

const (
	oracleTopic = "sources/hub2/clusters/c3/sourceevents"
	backTopic   = "sources/hub2/clusters/c3/agentevents"
)

// oracle is a source and an agent that the broker must serve whatever attackers do: a message goes
// from one to the other and is answered.
type oracle struct {
	hub, agent *peer
	took       []time.Duration
}

// peer is one of the two clients.
type peer struct {
	net.Conn
	reader *bufio.Reader
	id     uint16
}

// newOracle connects the two clients. Where the system has more than one address on loopback, they
// have another one than the attackers.
func newOracle(addr string) (*oracle, error) {
	hub, err := dialPeer(addr, "hub2", backTopic)
	if err != nil {
		return nil, err
	}
	agent, err := dialPeer(addr, "c3", oracleTopic)
	if err != nil {
		_ = hub.Close()
		return nil, err
	}
	return &oracle{hub: hub, agent: agent}, nil
}

func dialPeer(addr, user, filter string) (*peer, error) {
	dialer := net.Dialer{Timeout: kit.Patience}
	if runtime.GOOS == "linux" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &peer{Conn: conn, reader: bufio.NewReader(conn)}
	_ = conn.SetDeadline(time.Now().Add(kit.Patience))
	connect := mqttraw.Connect{ClientID: "oracle", User: user, Password: password, Clean: true, Props: [][]byte{mqttraw.PropFour(mqttraw.SessionExpiry, 3600)}}
	for _, exchange := range []struct {
		send []byte
		want byte
	}{
		{connect.Bytes(), mqttraw.CONNACK},
		{mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: filter, Options: 1}), mqttraw.SUBACK},
	} {
		_, _ = conn.Write(exchange.send)
		r, err := mqttraw.Read(p.reader)
		if err == nil && (r.Type != exchange.want || r.Code() >= 0x80) {
			err = fmt.Errorf("the broker answers %v", r)
		}
		if err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("connect %s: %w", user, err)
		}
	}
	return p, nil
}

// served returns an error unless a message and its answer arrive within the test's patience.
func (o *oracle) served() error {
	start := time.Now()
	for _, way := range []struct {
		from, to *peer
		topic    string
	}{{o.hub, o.agent, oracleTopic}, {o.agent, o.hub, backTopic}} {
		if err := pass(way.from, way.to, way.topic, fmt.Sprint(len(o.took))); err != nil {
			return fmt.Errorf("a client is not served, after %v: %w", time.Since(start).Round(time.Millisecond), err)
		}
	}
	o.took = append(o.took, time.Since(start))
	return nil
}

// pass publishes a message on from, which must arrive at to.
func pass(from, to *peer, topic, payload string) error {
	deadline := time.Now().Add(kit.Patience)
	_ = from.SetDeadline(deadline)
	_ = to.SetDeadline(deadline)
	from.id = from.id%60_000 + 1
	_, _ = from.Write(mqttraw.Publish(mqttraw.QoS1, from.id, topic, payload))
	ack, err := mqttraw.Read(from.reader)
	if err == nil && (ack.Type != mqttraw.PUBACK || ack.ID != from.id || ack.Code() >= 0x80) {
		err = fmt.Errorf("instead of the acknowledgement: %v", ack)
	}
	if err != nil {
		return err
	}
	got, err := mqttraw.Read(to.reader)
	if err == nil && (got.Type != mqttraw.PUBLISH || got.Topic != topic || got.Payload != payload) {
		err = fmt.Errorf("instead of the message: %v", got)
	}
	if err == nil {
		_, err = to.Write(mqttraw.Puback(got.ID))
	}
	return err
}

func (o *oracle) close() {
	_ = o.hub.Close()
	_ = o.agent.Close()
}
