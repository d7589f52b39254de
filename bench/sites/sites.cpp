// The same as sites.c, with the containers and operators of C++.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {
constexpr size_t PAGE = 4096;
constexpr int COUNT = 20;

struct Memory {
	std::vector<char> vector;
	std::unique_ptr<char[]> array;
	std::string string;
	volatile char *start;
};
}

#define NOINLINE __attribute__((noinline))

// A vector, an array or a string.
template <int N> NOINLINE void site(Memory &memory, size_t size)
{
	switch (N % 3) {
	case 0:
		memory.vector.resize(size, char(N + 1));
		memory.start = memory.vector.data();
		break;
	case 1:
		memory.array = std::make_unique<char[]>(size);
		memory.start = memory.array.get();
		break;
	default:
		memory.string.assign(size, char(N + 1));
		memory.start = memory.string.data();
	}
}

namespace {
using Fill = void (*)(Memory &, size_t);

template <int... N> std::vector<Fill> all(std::integer_sequence<int, N...>)
{
	return { site<N>... };
}
}

int main(int argc, char **argv)
{
	if (argc != COUNT + 2)
		return 2;
	double rate = std::atof(argv[1]) * (1 << 20);
	auto fills = all(std::make_integer_sequence<int, COUNT>());
	std::vector<Memory> memory(COUNT);
	std::vector<size_t> hot(COUNT);
	auto fill = [&](int from, int to) {
		for (int n = from; n < to; n++) {
			char *end;
			size_t size = std::strtoul(argv[n + 2], &end, 10) << 10;
			fills[n](memory[n], size);
			hot[n] = *end == ':' && end[1] == '1' ? size : 0;
			std::this_thread::sleep_for(std::chrono::duration<double>(size / rate));
		}
	};
	fill(0, COUNT / 2);
	std::thread(fill, COUNT / 2, COUNT).join();
	for (;;) {
		for (int n = 0; n < COUNT; n++)
			for (size_t at = 0; at < hot[n]; at += PAGE)
				memory[n].start[at] = memory[n].start[at] + 1;
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	}
}
