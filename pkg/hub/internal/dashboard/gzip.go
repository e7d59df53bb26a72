package dashboard

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
)

// compressed serves next with gzip to browsers that accept it. A page of 50 works becomes a tenth. It is
// not for streams, which must arrive at once.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		// The fastest level: a page is compressed for one reader.
		zipped, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		next.ServeHTTP(&gzipWriter{ResponseWriter: w, body: zipped}, r)
		_ = zipped.Close() // fails if the browser has gone
	})
}

// gzipWriter compresses the body.
type gzipWriter struct {
	http.ResponseWriter
	body *gzip.Writer
}

// WriteHeader implements [http.ResponseWriter].
func (w *gzipWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *gzipWriter) Write(data []byte) (int, error) { return w.body.Write(data) }

// acceptsGzip reports whether the header Accept-Encoding names gzip with a weight above 0.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		weight, ok := strings.CutPrefix(strings.ToLower(strings.ReplaceAll(parameters, " ", "")), "q=")
		if !ok {
			return true
		}
		q, err := strconv.ParseFloat(weight, 64)
		return err == nil && q > 0
	}
	return false
}
