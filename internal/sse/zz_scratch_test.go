package sse_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowapi/flowapi/internal/sse"
)

func TestScratchLoad(t *testing.T) {
	if addr := os.Getenv("SCRATCH_ADDR"); addr != "" {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var lat []time.Duration
		counts := map[int]int{}
		for range 1000 {
			wg.Go(func() {
				c, err := net.Dial("tcp", addr)
				if err != nil { panic(err) }
				fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				sc := bufio.NewReaderSize(c, 16<<10)
				var my []time.Duration
				n, last := 0, int64(0)
				for {
					line, err := sc.ReadSlice('\n')
					if err != nil { break }
					if bytes.HasPrefix(line, []byte("id: ")) {
						id, _ := strconv.ParseInt(string(bytes.TrimSpace(line[4:])), 10, 64)
						if last != 0 && id != last+1 && id != last { panic(fmt.Sprint("gap ", last, id)) }
						last = id
					}
					if bytes.HasPrefix(line, []byte("data: {\"t\":")) {
						ns, _ := strconv.ParseInt(string(line[11:30]), 10, 64)
						my = append(my, time.Duration(time.Now().UnixNano()-ns)); n++
					}
				}
				mu.Lock(); lat = append(lat, my...); counts[n]++; mu.Unlock()
			})
		}
		wg.Wait()
		slices.Sort(lat)
		fmt.Println("counts", counts, "n", len(lat), "p50", lat[len(lat)/2], "p99", lat[len(lat)*99/100], "max", lat[len(lat)-1])
		return
	}
	log := newLog()
	tail := sse.NewTail(log, log.wake, sse.Options{})
	go tail.Run(context.Background())
	ln, _ := net.Listen("tcp", "127.0.0.1:0")
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { if err := tail.Stream(r.Context(), w, sse.FromNow, nil); err != nil { fmt.Println(err) } }))
	cmd := exec.Command(os.Args[0], "-test.run", "ScratchLoad", "-test.v")
	cmd.Env = append(os.Environ(), "SCRATCH_ADDR="+ln.Addr().String())
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Start()
	for tail.Subscribers() < 1000 { time.Sleep(10 * time.Millisecond) }
	time.Sleep(300 * time.Millisecond)
	var u0, u1 syscall.Rusage
	syscall.Getrusage(0, &u0)
	begin := time.Now()
	pad := bytes.Repeat([]byte("x"), 250)
	for i := range 2500 {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * 2 * time.Millisecond)))
		log.mu.Lock()
		id := log.newest() + 1
		log.events = append(log.events, sse.Message{ID: id, Frame: sse.AppendFrame(nil, id, "execution.created", []byte(fmt.Sprintf(`{"t":%019d,"p":"%s"}`, time.Now().UnixNano(), pad)))})
		close(log.grown); log.grown = make(chan struct{})
		log.mu.Unlock()
	}
	time.Sleep(500 * time.Millisecond)
	syscall.Getrusage(0, &u1)
	fmt.Println("server cpu", time.Duration(u1.Utime.Nano()+u1.Stime.Nano()-u0.Utime.Nano()-u0.Stime.Nano()), "of", time.Since(begin), "maxrss", u1.Maxrss>>10, "MB")
	tail.Close()
	cmd.Wait()
	fmt.Println(out.String())
}
