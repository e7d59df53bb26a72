package dashboard

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

func TestCompressed(t *testing.T) {
	text := strings.Repeat("<tr><td>a work</td></tr>", 1000)
	compressed, err := newCompressed()
	kit.NoError(t, err)
	handler := compressed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Length", "24000")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, text)
	}))
	for _, encoding := range []string{"gzip", "identity"} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		answer := w.Result()
		body := io.Reader(answer.Body)
		if encoding == "gzip" {
			if answer.Header.Get("Content-Encoding") != "gzip" || answer.Header.Get("Content-Length") != "" || w.Body.Len() > len(text)/10 {
				t.Errorf("headers %v and %d bytes", answer.Header, w.Body.Len())
			}
			unzipped, err := gzip.NewReader(answer.Body)
			kit.NoError(t, err)
			body = unzipped
		} else if answer.Header.Get("Content-Encoding") != "" {
			t.Errorf("headers %v for %s", answer.Header, encoding)
		}
		got, err := io.ReadAll(body)
		kit.NoError(t, err)
		if string(got) != text || answer.StatusCode != http.StatusNotFound || answer.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: status %d, %d bytes, headers %v", encoding, answer.StatusCode, len(got), answer.Header)
		}
	}
}
