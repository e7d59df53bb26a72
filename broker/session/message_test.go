package session

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/transport/topicfilter"
)

func sampleMessages() []*Message {
	return []*Message{
		{},
		{Topic: "a", Payload: []byte("x"), QoS: 1, UTF8: true, Expires: 1 << 40},
		{Topic: "a/b", ContentType: "application/json", ResponseTopic: "r", CorrelationData: []byte{0, 1},
			User: []Property{{"ce-id", "1"}, {"ce-id", ""}, {"", "ä"}}, Payload: bytes.Repeat([]byte("p"), 1000)},
	}
}

func TestMessageCodec(t *testing.T) {
	for _, m := range sampleMessages() {
		data := m.encode()
		got, err := decodeMessage(data)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, %v, want %+v", got, err, m)
		}
		for n := range data {
			if _, err := decodeMessage(data[:n]); err == nil {
				t.Fatalf("%d of %d bytes are decoded", n, len(data))
			}
		}
		if _, err := decodeMessage(append(data, 0)); err == nil {
			t.Error("a byte too many is decoded")
		}
	}
	for name, data := range map[string][]byte{
		"version":             {2, 0, 0, 0, 0, 0, 0, 0, 0},
		"flags":               {1, 0x80, 0, 0, 0, 0, 0, 0, 0},
		"negative expiry":     append([]byte{1, 0}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0),
		"too many properties": {1, 0, 0, 0, 0, 0, 0, 100, 0},
	} {
		if m, err := decodeMessage(data); err == nil {
			t.Errorf("%s: decoded as %+v", name, m)
		}
	}
}

// FuzzDecodeMessage checks that decoding either fails or returns a message that survives encoding
// and decoding.
func FuzzDecodeMessage(f *testing.F) {
	for _, m := range sampleMessages() {
		f.Add(m.encode())
	}
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMessage(data)
		if err != nil {
			return
		}
		again, err := decodeMessage(m.encode())
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

// FuzzIndex compares the index with matching each filter separately, without "#" and "$", which no client may use.
func FuzzIndex(f *testing.F) {
	f.Add("a/b", "a/b\na/+\n+\n+/b\n$share/g/a/+\nb\na/b/+\na\n\n/")
	f.Add("/", "+/+\n/\n+\n//")
	f.Fuzz(func(t *testing.T, topic, filters string) {
		if strings.ContainsAny(topic, "+#$") {
			t.Skip()
		}
		var x index
		want, subs := map[string]int{}, map[string]bool{}
		s := &session{}
		for _, filter := range strings.Split(filters, "\n") {
			group, rest := topicfilter.SplitShare(filter)
			if strings.Contains(rest, "#") || strings.HasPrefix(filter, "$share/") && group == "" {
				continue
			}
			x.add(s, Subscription{Filter: filter})
			subs[filter] = true
			if topicfilter.Match(rest, topic) {
				want[filter] = 1
			}
		}
		match := func() map[string]int {
			got := map[string]int{}
			x.match(topic, func(_ *session, sub Subscription) { got[sub.Filter]++ },
				func(group map[*session]Subscription) { got[group[s].Filter]++ })
			return got
		}
		if got := match(); !reflect.DeepEqual(got, want) {
			t.Errorf("topic %q: the index has %v, want %v", topic, got, want)
		}
		for filter := range subs {
			x.remove(s, filter)
			x.remove(s, filter) // harmless
		}
		if len(match()) > 0 || len(x.root.children) > 0 {
			t.Error("something is left after everything was removed")
		}
	})
}
