"""The classes that users see: the engines in threads, under trio and under asyncio."""
