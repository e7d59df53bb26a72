package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
)

// authorizer returns a function that reports whether a request presents the bearer token in file, or
// true for every request if file is empty. The file is read for each request, so that a new token is
// accepted at once; requests are rare. It returns an error if the token cannot be read. Errors of
// requests go to logger.
func authorizer(file string, logger *slog.Logger) (func(*http.Request) bool, error) {
	if file == "" {
		return func(*http.Request) bool { return true }, nil
	}
	if _, err := readToken(file); err != nil {
		return nil, err
	}
	return func(r *http.Request) bool {
		scheme, presented, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return false
		}
		token, err := readToken(file)
		if err != nil {
			logger.Error("request refused, reading the token failed", "error", err)
			return false
		}
		// Of digests, the time of a comparison reveals neither the token nor its length.
		want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(presented)))
		return subtle.ConstantTimeCompare(want[:], got[:]) == 1
	}, nil
}

func readToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the listener's token (--listen-token-file): %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("the listener's token file %s (--listen-token-file) is empty", file)
	}
	return token, nil
}

// guard serves next to requests that are authorized.
func guard(authorized func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !authorized(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// RequireToken returns a handler that serves next to requests that present the bearer token in file,
// and answers others with 401. The file is read for each request. If it is empty, it serves next to all.
// It returns an error if the token cannot be read. Errors of requests go to logger.
func RequireToken(file string, next http.Handler, logger *slog.Logger) (http.Handler, error) {
	authorized, err := authorizer(file, logger)
	if err != nil {
		return nil, err
	}
	return guard(authorized, next), nil
}
