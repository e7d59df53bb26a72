package faults

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// lossy is a proxy that understands MQTT and loses messages: it acknowledges a PUBLISH itself, in
// both directions, and forwards it to nobody. Neither side can notice.
type lossy struct {
	addr string

	mu    sync.Mutex
	share float64 // of the messages that are lost
	lost  [][]byte
}

// startLossy starts a proxy for target, which loses nothing. It ends with the test.
func startLossy(t testing.TB, target string) *lossy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	l := &lossy{addr: listener.Addr().String()}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { l.serve(client, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait() // the programs have ended, or the proxy behind closes the connections
	})
	return l
}

// lose loses a share of the messages from now on. It returns how many were lost so far.
func (l *lossy) lose(share float64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share = share
	return len(l.lost)
}

// hasLost reports whether a lost message contains a text.
func (l *lossy) hasLost(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lost, func(packet []byte) bool { return bytes.Contains(packet, []byte(text)) })
}

func (l *lossy) drops(packet []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rand.Float64() >= l.share {
		return false
	}
	l.lost = append(l.lost, packet)
	return true
}

func (l *lossy) serve(client net.Conn, target string) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	toClient, toServer := &writer{conn: client}, &writer{conn: server}
	var group sync.WaitGroup
	group.Go(func() { l.forward(client, toServer, toClient) })
	group.Go(func() { l.forward(server, toClient, toServer) })
	group.Wait()
}

// writer writes whole packets from two goroutines.
type writer struct {
	mu   sync.Mutex
	conn net.Conn
}

func (w *writer) write(packet []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.conn.Write(packet)
	return err
}

// forward copies packets until one end is closed, and closes both. back leads to the sender.
func (l *lossy) forward(from net.Conn, to, back *writer) {
	defer func() { _, _ = from.Close(), to.conn.Close() }()
	reader := bufio.NewReader(from)
	for {
		packet, err := readPacket(reader)
		if err != nil {
			return
		}
		if id := packetID(packet); id != nil && l.drops(packet) {
			err = back.write([]byte{0x40, 2, id[0], id[1]}) // PUBACK
		} else {
			err = to.write(packet)
		}
		if err != nil {
			return
		}
	}
}

// readPacket reads one MQTT packet.
func readPacket(reader *bufio.Reader) ([]byte, error) {
	header, err := reader.Peek(1)
	if err != nil {
		return nil, err
	}
	packet := []byte{header[0]}
	_, _ = reader.Discard(1)
	length, err := binary.ReadUvarint(reader) // MQTT's lengths are varints of at most four bytes
	if err != nil {
		return nil, err
	}
	packet = binary.AppendUvarint(packet, length)
	start := len(packet)
	packet = append(packet, make([]byte, length)...)
	_, err = io.ReadFull(reader, packet[start:])
	return packet, err
}

// packetID returns the packet identifier of a PUBLISH of QoS 1, nil for other packets.
func packetID(packet []byte) []byte {
	if packet[0]>>4 != 3 || packet[0]>>1&3 != 1 {
		return nil
	}
	_, n := binary.Uvarint(packet[1:])
	body := packet[1+n:]
	topic := int(binary.BigEndian.Uint16(body))
	return body[2+topic : 4+topic]
}
