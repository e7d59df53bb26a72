package wire_test

import (
	"bytes"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

func TestAccepts(t *testing.T) {
	for _, a := range []wire.Accepts{{}, {Deltas: true}, {Zstd: true}, wire.Accepted} {
		if got := wire.ParseAccepts(a.String()); got != a {
			t.Errorf("%q is %+v, want %+v", a.String(), got, a)
		}
	}
	if got := wire.ParseAccepts("brotli,zstd,,zstd"); got != (wire.Accepts{Zstd: true}) {
		t.Errorf("what is not known is %+v", got)
	}
}

// A compressed event is the same message, and much smaller.
func TestCompress(t *testing.T) {
	status := statusWith(t, wirekit.LargeStatus(100))
	status.Accepts = wire.Accepts{Zstd: true}
	for name, message := range map[string]wire.Message{"status": status, "spec": messages(t)["update"]} {
		plain, err := wire.Encode(message, time.UnixMilli(0))
		kit.NoError(t, err)
		compressed := plain.Clone()
		kit.NoError(t, wire.Compress(&compressed))
		if small := name == "status"; small == (10*len(compressed.Data()) > len(plain.Data())) {
			t.Errorf("%s: %d bytes of %d", name, len(compressed.Data()), len(plain.Data()))
		}
		want, err := wire.Decode(plain)
		kit.NoError(t, err)
		got, err := wire.Decode(compressed)
		kit.NoError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		data, err := wire.PlainData(compressed)
		if err != nil || !bytes.Equal(data, plain.Data()) {
			t.Errorf("%s: PlainData returns %d bytes, %v", name, len(data), err)
		}
	}
}

// What compression does not help, and what is very large, stays as it is.
func TestNotCompressed(t *testing.T) {
	random := make([]byte, 4096)
	_, _ = rand.Read(random)
	for name, data := range map[string][]byte{
		"small": []byte(strings.Repeat("a", 500)), "random": random, "large": bytes.Repeat([]byte("a"), 1<<20+1), "empty": nil,
	} {
		e := cloudevents.New()
		kit.NoError(t, e.SetData("application/json", data))
		if err := wire.Compress(&e); err != nil || !bytes.Equal(e.Data(), data) || e.DataContentType() != "application/json" {
			t.Errorf("%s: %d bytes of type %s, %v", name, len(e.Data()), e.DataContentType(), err)
		}
	}
}

// A few bytes that become gigabytes are refused before they are made.
func TestCompressedBomb(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	kit.NoError(t, err)
	for name, size := range map[string]int{"as large as allowed": 1 << 20, "larger": 1<<20 + 1, "a bomb": 256 << 20} {
		var bomb []byte
		if size <= 1<<20+1 {
			bomb = encoder.EncodeAll(bytes.Repeat([]byte(" "), size), nil)
		} else {
			var stream bytes.Buffer // does not tell its size
			writer, err := zstd.NewWriter(&stream)
			kit.NoError(t, err)
			for range size >> 20 {
				_, _ = writer.Write(bytes.Repeat([]byte(" "), 1<<20))
			}
			_ = writer.Close()
			bomb = stream.Bytes()
		}
		e := cloudevents.New()
		_ = e.SetData("application/vnd.workwire.zstd", bomb)
		data, err := wire.PlainData(e)
		if refused := err != nil && (strings.Contains(err.Error(), "larger than 1048576 bytes") || strings.Contains(err.Error(), "uncompress")); refused == (size == 1<<20) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
}

// TestPlainSize: what a receiver is paid for is never less than what it gets.
func TestPlainSize(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	kit.NoError(t, err)
	small, large := encoder.EncodeAll([]byte(strings.Repeat(" ", 600)), nil), encoder.EncodeAll([]byte(strings.Repeat(" ", 100_000)), nil)
	for _, c := range []struct {
		name  string
		data  []byte
		size  int
		plain bool
	}{
		{"not compressed", []byte(`{}`), 2, true},
		{"compressed", large, 100_000, true},
		{"a small frame before a large one", append(slices.Clip(small), large...), 600, false},
		{"no frame", []byte{0x28, 0xb5, 0x2f, 0xfd}, 1 << 20, false},
	} {
		e := cloudevents.New()
		kit.NoError(t, e.SetData("application/json", c.data))
		if size := wire.PlainSize(e); size != c.size {
			t.Errorf("%s: size %d, want %d", c.name, size, c.size)
		}
		if plain, err := wire.PlainData(e); (err == nil) != c.plain {
			t.Errorf("%s: %d bytes, %v", c.name, len(plain), err)
		}
	}
}

// FuzzPlainData: whatever claims to be compressed is refused, or has a bounded size, which [wire.PlainSize] states.
func FuzzPlainData(f *testing.F) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoder.EncodeAll([]byte(strings.Repeat(`{"conditions":[]}`, 100)), nil))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := cloudevents.New()
		if err := e.SetData("application/json", data); err != nil {
			t.Skip()
		}
		if plain, err := wire.PlainData(e); err == nil && (len(plain) > max(1<<20, len(data)) || len(plain) > wire.PlainSize(e)) {
			t.Fatalf("%d bytes of %d, %d stated", len(plain), len(data), wire.PlainSize(e))
		}
	})
}
