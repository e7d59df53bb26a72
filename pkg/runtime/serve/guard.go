package serve

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
)

// secured returns a listener that serves TLS with the certificate and the key of the files, which are
// reloaded when they change. It returns an error if they cannot be used.
func secured(listener net.Listener, certFile, keyFile string) (net.Listener, error) {
	files := &certificate{certFile: certFile, keyFile: keyFile}
	if _, err := files.get(nil); err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: files.get, NextProtos: []string{"http/1.1"},
	}), nil
}

// authorizer returns a function that reports whether a request presents the bearer token in file, or
// true for every request if file is empty. It returns an error if the token cannot be read. Errors
// of requests go to logger.
func authorizer(file string, logger *slog.Logger) (func(*http.Request) bool, error) {
	if file == "" {
		return func(*http.Request) bool { return true }, nil
	}
	bearer := &token{file: file}
	if _, err := bearer.read(); err != nil {
		return nil, err
	}
	return func(r *http.Request) bool {
		ok, err := bearer.presentedBy(r)
		if err != nil {
			logger.Error("request refused, reading the token failed", "error", err)
		}
		return ok
	}, nil
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
// and answers others with 401. The file is read for each request. If file is empty, it returns next.
// It returns an error if the token cannot be read. Errors of requests go to logger.
func RequireToken(file string, next http.Handler, logger *slog.Logger) (http.Handler, error) {
	if file == "" {
		return next, nil
	}
	authorized, err := authorizer(file, logger)
	if err != nil {
		return nil, err
	}
	return guard(authorized, next), nil
}
