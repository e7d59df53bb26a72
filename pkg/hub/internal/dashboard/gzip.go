package dashboard

import (
	"compress/gzip"
	"net/http"

	"github.com/klauspost/compress/gzhttp"
)

// newCompressed returns what serves a handler with gzip to browsers that accept it. A page of 50 works becomes a tenth. It is not
// for streams, which must arrive at once.
func newCompressed() (func(http.Handler) http.HandlerFunc, error) {
	// The fastest level: a page is compressed for one reader.
	return gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false))
}
