package broker_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

func startWebSocket(t *testing.T, cfg broker.Config) string {
	t.Helper()
	cfg.Users, cfg.Listeners = users(), []broker.Listener{{Address: "127.0.0.1:0", WebSocketPath: "/mqtt"}}
	return brokertest.Start(t, cfg).Addr
}

// openWebSocket opens a WebSocket, in which nobody has logged in.
func openWebSocket(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	dialer := websocket.Dialer{Subprotocols: []string{"mqtt"}}
	ws, _, err := dialer.DialContext(ctx, "ws://"+addr+"/mqtt", nil) //nolint:bodyclose // it has none
	kit.NoError(t, err)
	t.Cleanup(func() { _ = ws.Close() })
	kit.NoError(t, ws.SetReadDeadline(time.Now().Add(kit.Patience)))
	return ws
}

// readMessage returns the next packet, which is at the end of a message.
func readMessage(t *testing.T, ws *websocket.Conn) []byte {
	t.Helper()
	kind, message, err := ws.ReadMessage()
	kit.NoError(t, err)
	if kind != websocket.BinaryMessage {
		t.Fatalf("a message of kind %d", kind)
	}
	return message
}

// TestWebSocketPieces: how packets are divided among messages, and messages among frames, is the client's affair.
func TestWebSocketPieces(t *testing.T) {
	ws := openWebSocket(t, startWebSocket(t, broker.Config{}))
	connect := mqttraw.Connect{ClientID: "x", User: "c1", Password: password, KeepAlive: 60}.Bytes()
	all := slices.Concat(connect, []byte{0xc0, 0, 0xc0, 0}) // two PINGREQ
	kit.NoError(t, ws.WriteMessage(websocket.BinaryMessage, nil))
	kit.NoError(t, ws.WriteMessage(websocket.BinaryMessage, all[:7]))
	kit.NoError(t, ws.WriteControl(websocket.PingMessage, []byte("still there?"), time.Now().Add(kit.Patience)))
	kit.NoError(t, ws.WriteMessage(websocket.BinaryMessage, all[7:len(connect)+1]))
	kit.NoError(t, ws.WriteMessage(websocket.BinaryMessage, all[len(connect)+1:]))
	pong := ""
	ws.SetPongHandler(func(data string) error { pong = data; return nil })
	if connack := readMessage(t, ws); connack[0]&0xf0 != mqttraw.CONNACK || connack[3] != 0 {
		t.Fatalf("answered with %x", connack)
	}
	var answers []byte
	for len(answers) < 4 {
		answers = append(answers, readMessage(t, ws)...)
	}
	if !slices.Equal(answers, []byte{0xd0, 0, 0xd0, 0}) || pong != "still there?" {
		t.Errorf("answered with %x, pong %q", answers, pong)
	}
}

// TestWebSocketRequests: what is no request for MQTT over WebSocket gets an HTTP response that says so.
func TestWebSocketRequests(t *testing.T) {
	addr := startWebSocket(t, broker.Config{})
	const upgrade = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	for name, test := range map[string]struct {
		request string
		want    int // 0: the connection ends without a response
	}{
		"another path":        {"GET /other HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Protocol: mqtt\r\n\r\n", http.StatusNotFound},
		"MQTT 3.1":            {"GET /mqtt HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Protocol: mqttv3.1\r\n\r\n", http.StatusBadRequest},
		"no subprotocol":      {"GET /mqtt HTTP/1.1\r\n" + upgrade + "\r\n", http.StatusBadRequest},
		"no WebSocket":        {"GET /mqtt HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n", http.StatusBadRequest},
		"POST":                {"POST /mqtt HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Protocol: mqtt\r\n\r\n", http.StatusMethodNotAllowed},
		"MQTT":                {string(mqttraw.Connect{ClientID: "x", User: "c1", Password: password}.Bytes()) + "\n\n", 0},
		"headers without end": {"GET /mqtt HTTP/1.1\r\nA: " + strings.Repeat("a", 20_000), 0},
		"a good one":          {"GET /mqtt HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Protocol: other, mqtt\r\n\r\n", http.StatusSwitchingProtocols},
	} {
		conn, err := net.Dial("tcp", addr)
		kit.NoError(t, err)
		kit.NoError(t, conn.SetDeadline(time.Now().Add(kit.Patience)))
		_, _ = conn.Write([]byte(test.request)) // the broker may have ended it
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		switch {
		case err != nil && (test.want != 0 || isTimeout(err)):
			t.Errorf("%s: %v", name, err)
		case err == nil && response.StatusCode != test.want:
			t.Errorf("%s: %s, want %d", name, response.Status, test.want)
		}
		if err == nil {
			_ = response.Body.Close()
		}
		_ = conn.Close()
	}
}

func isTimeout(err error) bool {
	network, ok := err.(net.Error) //nolint:errorlint // it is not wrapped
	return ok && network.Timeout()
}

// TestWebSocketEnds: the client reads why its connection ends, in the WebSocket.
func TestWebSocketEnds(t *testing.T) {
	addr := startWebSocket(t, broker.Config{})
	for name, test := range map[string]struct {
		kind int
		send []byte
		want byte // of a DISCONNECT; 0: none
	}{
		"a packet that is too large": {websocket.BinaryMessage, []byte{0x30, 0xff, 0xff, 0xff, 0x7f}, 0x95},
		"a second CONNECT":           {websocket.BinaryMessage, mqttraw.Connect{ClientID: "x", User: "c1", Password: password}.Bytes(), 0x82},
		"text":                       {websocket.TextMessage, []byte{0xc0, 0}, 0},
	} {
		ws := openWebSocket(t, addr)
		kit.NoError(t, ws.WriteMessage(websocket.BinaryMessage, mqttraw.Connect{ClientID: name, User: "c1", Password: password}.Bytes()))
		readMessage(t, ws)
		kit.NoError(t, ws.WriteMessage(test.kind, test.send))
		if test.want != 0 {
			if last := readMessage(t, ws); last[0]&0xf0 != mqttraw.DISCONNECT || last[2] != test.want {
				t.Errorf("%s: answered with %x, want DISCONNECT 0x%x", name, last, test.want)
			}
		}
		if _, more, err := ws.ReadMessage(); err == nil || isTimeout(err) {
			t.Errorf("%s: the connection goes on: %x, %v", name, more, err)
		}
	}
}

// TestWebSocketOfNothing: frames without a byte of MQTT, and pings, are paid for like messages.
func TestWebSocketOfNothing(t *testing.T) {
	const rate = 20 // messages a second
	addr := startWebSocket(t, broker.Config{Limits: limits.Config{Agent: limits.Rate{MessagesPerSecond: rate}}})
	frame := func(first byte) []byte { return []byte{first, 0x80, 0, 0, 0, 0} } // masked, without a byte
	message, begin, piece, ping := frame(0x82), frame(0x02), frame(0x00), frame(0x89)
	for name, frames := range map[string][]byte{
		"messages": slices.Repeat(message, 2_000_000), "pieces": append(begin, slices.Repeat(piece, 2_000_000)...), "pings": slices.Repeat(ping, 2_000_000),
	} {
		ws := openWebSocket(t, addr)
		kit.NoError(t, ws.WriteMessage(websocket.BinaryMessage, mqttraw.Connect{ClientID: name, User: "c1", Password: password}.Bytes()))
		readMessage(t, ws)
		raw := ws.NetConn()
		kit.NoError(t, raw.SetWriteDeadline(time.Now().Add(2*time.Second)))
		n, err := raw.Write(frames)
		t.Logf("%s: the broker read at most %d of %d bytes: %v", name, n, len(frames), err)
		if err == nil {
			t.Errorf("%s: the broker has read all", name)
		}
	}
}
